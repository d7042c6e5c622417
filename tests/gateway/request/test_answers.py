"""The stream between the workers' news and its one reader."""

import asyncio

import pytest

from gateway.request.answer import Piece
from gateway.request.answers import Answers
from gateway.request.errors import Reason, RequestError
from gateway.request.record import Record
from proto.work import FinishReason


def stream(choices: int = 1) -> tuple[Answers, list[int]]:
    stopped: list[int] = []
    return Answers(Record("r", "m", "", 1, choices, 0.0), choices, stopped.append), stopped


def piece(token: int, choice: int = 0, *, last: bool = False) -> Piece:
    return Piece(choice, (token,), finish=FinishReason.STOP if last else None)


async def test_what_is_there_comes_in_one_batch() -> None:
    answers, _ = stream()
    for token in range(3):
        answers.push(piece(token))
    assert [each.tokens for each in await anext(answers)] == [(0,), (1,), (2,)]


async def test_a_reader_that_gives_up_waiting_loses_nothing() -> None:
    answers, _ = stream()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(answers), 0.01)
    answers.push(piece(1))
    assert [each.tokens for each in await anext(answers)] == [(1,)]


async def test_the_stream_ends_with_its_last_choice() -> None:
    answers, _ = stream(2)
    answers.push(piece(1, 0, last=True))
    answers.push(piece(2, 1, last=True))
    assert len([batch async for batch in answers]) == 1
    assert answers.complete


async def test_an_error_comes_after_what_was_pushed_before_it() -> None:
    answers, _ = stream()
    answers.push(piece(1))
    answers.end(RequestError(Reason.WORKER_LOST, "gone"))
    answers.end()
    assert len(await anext(answers)) == 1
    for _ in range(2):
        with pytest.raises(RequestError):
            await anext(answers)


async def test_a_stopped_choice_shows_nothing_more_not_even_what_was_waiting() -> None:
    answers, stopped = stream(2)
    answers.push(piece(1, 0))
    answers.push(piece(2, 1))
    await answers.stop_choice(0)
    await answers.stop_choice(0)
    answers.push(piece(3, 0))
    assert [each.choice for each in await anext(answers)] == [1]
    assert stopped == [0]
    answers.push(piece(4, 1, last=True))
    assert len(await anext(answers)) == 1
    with pytest.raises(StopAsyncIteration):
        await anext(answers)


async def test_a_waiting_reader_is_woken_by_a_stop() -> None:
    answers, _ = stream()
    waiting = asyncio.ensure_future(anext(answers))
    await asyncio.sleep(0)
    await answers.stop_choice(0)
    with pytest.raises(StopAsyncIteration):
        await waiting
