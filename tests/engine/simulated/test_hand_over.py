"""A running request that goes on at another engine: it ends with a ticket where its KV can be read, or as it would have."""

import random
from dataclasses import replace

import pytest

from proto.fault import FaultKind
from proto.sampling import Sampling
from proto.work import FinishReason
from tests.engine.simulated.fleet import Running, engine, pair, tokens

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


async def test_it_ends_at_its_next_token() -> None:
    """Asked between two steps: the first token, then the one on which it ends."""
    async with engine(profile="toy") as one:
        one.submit("m", prompt(20), GREEDY)
        one.engine.hand_over("m")  # before it has begun
        assert len(tokens(await one.end_of("m"))) == 1
        assert one.finish_of("m") is FinishReason.HANDED_OVER
        ticket = one.outputs["m"][-1].ticket
        assert ticket is not None
        assert await one.engine.release(ticket.ticket_id)
        assert one.used == 0


async def test_one_that_ends_first_ends_as_it_would_have() -> None:
    async with engine(profile="toy") as one:
        whole = await one.run("a", prompt(20), GREEDY)
        one.engine.hand_over("a")  # it has ended
        one.engine.hand_over("nobody")
        one.submit("length", prompt(20), replace(GREEDY, max_tokens=1))
        one.engine.hand_over("length")
        await one.end_of("length")
        assert (one.finish_of("length"), one.outputs["length"][-1].ticket) == (FinishReason.LENGTH, None)
        one.submit("stop", prompt(20), replace(GREEDY, stop_token_ids=(whole[0],)))
        one.engine.hand_over("stop")
        await one.end_of("stop")
        assert (one.finish_of("stop"), one.outputs["stop"][-1].ticket) == (FinishReason.STOP, None)
        await one.until(lambda: one.used == 0)


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
        assert await one.engine.release(one.outputs["m"][-1].ticket.ticket_id)  # type: ignore[union-attr]


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
