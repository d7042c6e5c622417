"""A running request that goes on at another engine: it ends with a ticket where its KV can be read, or as it would have."""

import asyncio
import random
from dataclasses import replace

import pytest

from engine.simulated.sequence import Status
from proto.fault import FaultKind
from proto.sampling import Sampling
from proto.work import FinishReason
from tests.engine.simulated.fleet import Running, engine, pair, tokens
from tests.engine.simulated.hold import before_each_step

GREEDY = Sampling(max_tokens=60, temperature=0.0, ignore_eos=True)


def prompt(length: int) -> tuple[int, ...]:
    rng = random.Random(length)
    return tuple(rng.randrange(97, 123) for _ in range(length))


async def handed_over(writer: Running, name: str, given: int) -> tuple[int, ...]:
    """Asked for after so many tokens; the tokens that came."""
    await writer.until(lambda: len(tokens(writer.outputs.get(name, []))) >= given)
    writer.engine.hand_over(name)
    return tokens(await writer.end_of(name))


@pytest.mark.parametrize("length", [1, 9, 10, 11, 12, 13, 16, 30])
async def test_the_answer_goes_on_as_if_it_had_never_moved(length: int) -> None:
    """Around the end of a block, where one token more is waited for."""
    async with pair(profile="toy") as (writer, reader), engine("both", profile="toy") as alone:
        whole = await alone.run("a", prompt(length), GREEDY)
        writer.submit("m", prompt(length), GREEDY)
        begun = await handed_over(writer, "m", 4)
        last = writer.outputs["m"][-1]
        assert last.delta.finish is FinishReason.HANDED_OVER
        assert last.ticket is not None
        assert last.ticket.computed_tokens == length + len(begun) - 1
        assert last.ticket.computed_tokens % 16
        assert writer.engine.stats().tickets_held == 1
        left = replace(GREEDY, max_tokens=60 - len(begun))
        rest = await reader.run("m", prompt(length) + begun, left, pull=last.ticket)
        assert begun + rest == whole
        await writer.until(lambda: writer.used == 0)
        assert (writer.engine.stats().tickets_held, reader.used) == (0, 0)


def stays(writer: Running, name: str) -> list[bool]:
    """Of outputs without tokens, what they say."""
    return [output.delta.stays for output in writer.outputs.get(name, []) if not output.delta.tokens]


async def held_at(one: Running, name: str, given: int) -> asyncio.Event:
    """The engine stands still after so many tokens of it, until the event is set."""
    on = asyncio.Event()

    async def wait() -> None:
        generation = one.engine._generations.get(name)
        if generation is not None and generation.generated >= given:
            await on.wait()

    before_each_step(one.engine.injector, wait)
    await one.until(lambda: len(tokens(one.outputs.get(name, []))) == given)
    return on


@pytest.mark.parametrize("length", [20, 29])
async def test_it_ends_at_its_next_token(length: int) -> None:
    """Or the one after that, where that fills a block."""
    async with engine(profile="toy") as one:
        one.submit("m", prompt(length), GREEDY)
        on = await held_at(one, "m", 3)
        one.engine.hand_over("m")
        on.set()
        assert len(tokens(await one.end_of("m"))) == (4 if (length + 3) % 16 else 5)
        assert one.finish_of("m") is FinishReason.HANDED_OVER
        assert stays(one, "m") == []
        ticket = one.outputs["m"][-1].ticket
        assert ticket is not None
        assert await one.engine.release(ticket.ticket_id)
        assert one.used == 0


async def test_one_that_ends_first_ends_as_it_would_have() -> None:
    async with engine(profile="toy") as one:
        whole = await one.run("a", prompt(20), GREEDY)
        one.engine.hand_over("a")  # it has ended
        one.engine.hand_over("nobody")
        at = next(at for at in range(2, 20) if whole[at] not in whole[:at])
        one.submit("stop", prompt(20), replace(GREEDY, stop_token_ids=(whole[at],)))
        on = await held_at(one, "stop", at)
        one.engine.hand_over("stop")
        on.set()
        await one.end_of("stop")
        assert (one.finish_of("stop"), one.outputs["stop"][-1].ticket) == (FinishReason.STOP, None)
        await one.until(lambda: one.used == 0)


@pytest.mark.parametrize(("length", "most"), [(20, 4), (29, 5)])
async def test_one_that_would_end_by_then_says_that_it_stays(length: int, most: int) -> None:
    """Nobody could tell its own end from the hand-over."""
    async with engine(profile="toy") as one:
        one.submit("m", prompt(length), replace(GREEDY, max_tokens=most))
        on = await held_at(one, "m", 3)
        one.engine.hand_over("m")
        on.set()
        assert len(tokens(await one.end_of("m"))) == most
        assert (one.finish_of("m"), one.outputs["m"][-1].ticket) == (FinishReason.LENGTH, None)
        assert stays(one, "m") == [True]
        await one.until(lambda: one.used == 0)


async def test_one_that_has_not_begun_says_that_it_stays() -> None:
    async with engine(profile="toy") as one:
        one.submit("m", prompt(20), GREEDY)
        one.engine.hand_over("m")
        assert len(tokens(await one.end_of("m"))) == 60
        assert one.finish_of("m") is FinishReason.LENGTH
        assert stays(one, "m") == [True]


async def test_one_that_was_preempted_says_that_it_stays() -> None:
    """Its KV is not there to be read."""
    async with engine(profile="toy", kv_blocks=8, enable_prefix_caching=False) as one:
        on = asyncio.Event()

        async def wait() -> None:
            if one.engine.stats().preemptions:
                await on.wait()

        before_each_step(one.engine.injector, wait)
        for name, length in (("a", 20), ("b", 30)):
            one.submit(name, prompt(length), GREEDY)
        await one.until(lambda: one.engine.stats().preemptions)
        preempted = next(n for n, each in one.engine._generations.items() if each.sequence.status is Status.PREEMPTED)
        one.engine.hand_over(preempted)
        on.set()
        for name in ("a", "b"):
            assert len(tokens(await one.end_of(name))) == 60
        assert stays(one, preempted) == [True]


async def test_a_prefill_leg_hands_over_early_too() -> None:
    """One that gives the first tokens: room has come before it had given all of them."""
    async with pair(profile="toy") as (writer, reader), engine("both", profile="toy") as alone:
        whole = await alone.run("a", prompt(20), GREEDY)
        writer.submit("m", prompt(20), replace(GREEDY, max_tokens=40), hold=True)
        begun = await handed_over(writer, "m", 3)
        assert len(begun) < 40
        ticket = writer.outputs["m"][-1].ticket
        assert ticket is not None
        rest = await reader.run("m", prompt(20) + begun, replace(GREEDY, max_tokens=60 - len(begun)), pull=ticket)
        assert begun + rest == whole
        await writer.until(lambda: writer.used == 0)


async def test_logprobs_go_with_their_tokens() -> None:
    async with engine(profile="toy") as one:
        one.submit("m", prompt(20), replace(GREEDY, logprobs=1))
        await handed_over(one, "m", 2)
        assert all(len(output.delta.logprobs) == len(output.delta.tokens) for output in one.outputs["m"])
        assert await one.engine.release(one.outputs["m"][-1].ticket.ticket_id)  # type: ignore[union-attr]  # None would fail the test as well


async def test_one_that_is_aborted_after_it_was_asked_leaves_nothing() -> None:
    async with engine(profile="toy") as one:
        one.submit("m", prompt(40), GREEDY)
        await one.until(lambda: one.outputs.get("m"))
        one.engine.hand_over("m")
        await one.engine.abort("m")
        await one.until(lambda: one.used == 0)
        assert one.engine.stats().tickets_held == 0


async def test_a_ticket_that_is_lost_is_a_fault_and_no_end() -> None:
    async with engine(script={"faults": [{"kind": "handoff_missing"}]}, profile="toy") as one:
        one.submit("m", prompt(20), GREEDY)
        await handed_over(one, "m", 2)
        fault = one.fault_of("m")
        assert fault is not None
        assert fault.kind is FaultKind.HANDOFF_MISSING
        assert one.finish_of("m") is None
