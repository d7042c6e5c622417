"""How a limit gets to the engine's process, without one."""

import asyncio

import pytest

from engine.vllm.step_limit import StepLimit
from tests.waiting import until


class Process:
    """Answers when it may."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int]] = []
        self.may = asyncio.Event()
        self.broken = False

    async def call(self, tokens: int, chunk_tokens: int) -> int:
        self.heard.append((tokens, chunk_tokens))
        await self.may.wait()
        if self.broken:
            raise ValueError("no such method")
        return 2048


async def test_the_newest_limit_passes_those_that_have_not_been_told_yet() -> None:
    process = Process()
    limit = StepLimit(process.call)
    assert limit.set(1, 1)
    telling = asyncio.create_task(limit.tell())
    await until(lambda: process.heard == [(1, 1)])
    assert not any(limit.set(tokens, tokens) for tokens in (2, 3, 4))
    process.may.set()
    await telling
    assert process.heard == [(1, 1), (4, 4)]
    assert limit.most == 2048
    assert limit.set(5, 5)


async def test_only_one_task_is_asked_for_however_soon_the_next_limit_comes() -> None:
    limit = StepLimit(Process().call)
    assert [limit.set(tokens, tokens) for tokens in (1, 2)] == [True, False]


async def test_a_process_that_does_not_know_it_takes_none(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.may.set()
    process.broken = True
    limit = StepLimit(process.call)
    await limit.tell()
    assert limit.most == 0
    assert "no such method" in caplog.text
    process.broken = False
    assert limit.set(0, 0)
    await limit.tell()
    assert limit.most == 2048
