"""Limits of steps and the order of work, in real time."""

import pytest

from proto.precedence import Precedence
from proto.sampling import Sampling
from proto.work import Work
from tests.engine.simulated.fleet import Running, engine, text, tokens

GREEDY = Sampling(max_tokens=60, temperature=0.0, ignore_eos=True)


def submit(one: Running, name: str, precedence: Precedence, priority: int = 0, sampling: Sampling = GREEDY) -> None:
    prompt = text("prompt", name, "x" * 20)
    one.engine.submit(Work(name, prompt, sampling, priority, precedence=precedence))


async def order(one: Running, *names: str) -> list[str]:
    """By their first tokens."""
    for name in names:
        await one.end_of(name)
    firsts = [output.request_id for frame in one.frames for output in frame]
    return sorted(names, key=firsts.index)


async def test_what_has_begun_goes_before_prompts_and_late_ones_behind() -> None:
    async with engine(max_num_seqs=1) as one:
        for name, precedence in (
            ("late", Precedence.LATE),
            ("first", Precedence.ORDINARY),
            ("second", Precedence.ORDINARY),
            ("begun", Precedence.BEGUN),
        ):
            submit(one, name, precedence)
        assert await order(one, "late", "first", "second", "begun") == ["begun", "first", "second", "late"]


async def test_a_clients_priority_goes_before_the_gateways_order() -> None:
    """It is what it was: nobody's precedence lifts him over it."""
    async with engine(max_num_seqs=1) as one:
        submit(one, "begun", Precedence.BEGUN)
        submit(one, "urgent", Precedence.LATE, priority=-1)
        assert await order(one, "begun", "urgent") == ["urgent", "begun"]


@pytest.mark.parametrize("last", list(Precedence))
async def test_who_is_preempted_does_not_depend_on_who_went_first(last: Precedence) -> None:
    """The newest is, as where nobody goes first."""
    async with engine(kv_blocks=12) as one:
        preempted: set[str] = set()
        complete = one.engine._complete

        def completed(step: object, seconds: float) -> None:
            preempted.update(sequence.request_id for sequence in step.preempted)  # type: ignore[attr-defined]  # a step of the scheduler
            complete(step, seconds)  # type: ignore[arg-type]  # the same

        one.engine._complete = completed  # type: ignore[method-assign]  # replaced for the test
        submit(one, "old", Precedence.LATE)
        await one.until(lambda: one.outputs.get("old"))
        submit(one, "older", Precedence.ORDINARY)
        await one.until(lambda: one.outputs.get("older"))
        submit(one, "new", last)
        for name in ("old", "older", "new"):
            assert len(tokens(await one.end_of(name))) == 60
        assert preempted == {"new"}


async def test_no_limit_exceeds_the_engines_own() -> None:
    async with engine(max_num_batched_tokens=64) as one:
        assert one.engine.stats().most_step_tokens == 64
        for limit, kept in (((32, 16), (32, 16)), ((4096, 4000), (64, 4000)), ((0, 0), (64, 0))):
            one.engine.limit_step(*limit)
            limits = one.engine._scheduler.limits
            assert (limits.max_batched_tokens, limits.long_prefill_threshold) == kept
        one.engine.limit_step(8, 0)
        before = one.engine.stats().totals
        await one.run("a", tuple(range(40, 80)), Sampling(max_tokens=1, ignore_eos=True))
        after = one.engine.stats().totals.since(before)
        assert (after.chunk_tokens, after.chunk_steps) == (40, 5)
