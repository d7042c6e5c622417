"""Virtual time in strides equals virtual time step by step, exactly."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.cost.linear import LinearCost
from engine.simulated.host_memory import HostTier
from engine.simulated.job import Event, Job, Kind
from engine.simulated.limits import Limits
from engine.simulated.sequence import Sequence
from engine.simulated.virtual import VirtualEngine
from engine.simulated.waiting import Policy
from tests.engine.simulated.timeline import Timeline
from tests.examples import examples

COSTS = st.sampled_from(
    [
        LinearCost(base_s=1e-3, token_s=1e-5, context_token_s=1e-6, token_pair_s=1e-8),
        LinearCost(base_s=2.0**-10),  # exact in binary, so that arrivals can fall on the end of a step
        LinearCost(context_token_s=3e-5),
    ]
)


#: In blocks, as a block is a byte there; the slow one is hardly ever quicker than computing again.
HOSTS = st.sampled_from((None, None, HostTier(12, 1e6, 0.0), HostTier(1000, 1e6, 1e-6), HostTier(1000, 500.0, 0.0)))


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    return Limits(
        block_size=draw(st.sampled_from((2, 4, 16))),
        blocks=draw(st.integers(8, 40)),
        max_num_seqs=draw(st.sampled_from((1, 2, 4, 16))),
        max_batched_tokens=draw(st.sampled_from((16, 64))),
        max_model_len=draw(st.sampled_from((64, 1000))),
        long_prefill_threshold=draw(st.sampled_from((0, 0, 8))),
        watermark_blocks=draw(st.sampled_from((0, 0, 2))),
        policy=draw(st.sampled_from(Policy)),
        caching=draw(st.booleans()),
    )


@st.composite
def workload(draw: st.DrawFn, bounds: Limits) -> tuple[list[tuple[float, Job]], list[tuple[float, str]]]:
    room = min(bounds.blocks * bounds.block_size, bounds.max_model_len) - 1
    grid = draw(st.sampled_from((2.0**-10, 0.0007)))
    arrivals, aborts = [], []
    for index in range(draw(st.integers(1, 10))):
        prompt = draw(st.integers(1, max(1, room // 2)))
        external = draw(st.sampled_from((0, 0, prompt)))
        job = Job(
            f"r{index}",
            prompt,
            draw(st.integers(1, 80)),
            shared=tuple(range(draw(st.integers(0, prompt // bounds.block_size)))),
            priority=draw(st.integers(0, 2)),
            hold=draw(st.booleans()),
            external=external,
        )
        at = draw(st.integers(0, 60)) * grid
        arrivals.append((at, job))
        if draw(st.integers(0, 4)) == 0:
            aborts.append((at + draw(st.integers(0, 60)) * grid, job.request_id))
    return sorted(arrivals, key=lambda pair: pair[0]), aborts


def lru(engine: VirtualEngine) -> list[tuple[int, int]]:
    return [(block.key, block.count) for block in engine.scheduler.pool._evictable]


def same(one: VirtualEngine, other: VirtualEngine) -> None:
    assert (one.steps, one.now_s, one.generated_tokens) == (other.steps, other.now_s, other.generated_tokens)
    assert one.counters == other.counters
    assert lru(one) == lru(other)
    assert one.scheduler.pool.used == other.scheduler.pool.used == 0
    if one.host is not None and other.host is not None:
        assert one.host.counters == other.host.counters
        assert one.host.used_bytes == other.host.used_bytes


def test_an_answer_that_goes_on_in_the_first_step_of_a_stride_counts_from_the_next() -> None:
    """It had found no room for a step. What it waited for is its pause, and not one more gap."""
    bounds = Limits(
        block_size=2, blocks=35, max_num_seqs=4, max_batched_tokens=16, max_model_len=64, policy=Policy.PRIORITY
    )
    short = [(0.0, Job(f"s{index}", 1, 1)) for index in range(4)]
    long = [(1, 21, 0), (4, 18, 1), (3, 15, 0), (1, 15, 0)]
    arrivals = [
        *short,
        *(
            (2.0**-10 * (1 + n // 2), Job(f"l{n}", prompt, most, priority=p))
            for n, (prompt, most, p) in enumerate(long)
        ),
    ]
    cost = LinearCost(context_token_s=3e-5)
    strides, steps = Timeline(arrivals, [(0.0, "s0")]), Timeline(arrivals, [(0.0, "s0")])
    strides.run(bounds, cost, closed_form=True)
    steps.run(bounds, cost, closed_form=False)
    assert strides.log == steps.log


@examples(80)
@given(data=st.data(), cost=COSTS)
def test_strides_and_single_steps_agree_on_every_event_time_and_block(data: st.DataObject, cost: LinearCost) -> None:
    bounds = data.draw(limits())
    arrivals, aborts = data.draw(workload(bounds))
    host = data.draw(HOSTS)
    strides, steps = Timeline(arrivals, aborts, host=host), Timeline(arrivals, aborts, host=host)
    fast = strides.run(bounds, cost, closed_form=True)
    slow = steps.run(bounds, cost, closed_form=False)
    assert strides.log == steps.log
    same(fast, slow)


@examples(80)
@given(data=st.data(), cost=COSTS)
def test_moving_sequences_together_changes_nothing(data: st.DataObject, cost: LinearCost) -> None:
    bounds = data.draw(limits())
    arrivals, aborts = data.draw(workload(bounds))
    host = data.draw(HOSTS)
    together, alone = Timeline(arrivals, aborts, host=host), Timeline(arrivals, aborts, host=host)
    cohort = together.run(bounds, cost, together=True)
    single = alone.run(bounds, cost, together=False)
    assert [sorted_at(together.log), cohort.counters] == [sorted_at(alone.log), single.counters]
    same(cohort, single)


class Clocked(VirtualEngine):
    """Notes the time of every token, as long as answers are sampled one by one."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.times_s: dict[str, list[float]] = {}

    def _sampled(self, sequence: Sequence) -> bool:
        self.times_s.setdefault(sequence.request_id, []).append(self.now_s)
        return super()._sampled(sequence)


@examples(80)
@given(data=st.data(), cost=COSTS)
def test_gaps_are_those_between_the_times_of_tokens(data: st.DataObject, cost: LinearCost) -> None:
    bounds = data.draw(limits())
    arrivals, aborts = data.draw(workload(bounds))
    host = data.draw(HOSTS)
    fast = Timeline(arrivals, aborts, host=host)
    fast.run(bounds, cost)
    slow = Timeline(arrivals, aborts, kind=Clocked, host=host)
    truth = slow.run(bounds, cost, closed_form=False, together=False)
    assert isinstance(truth, Clocked)
    for event in (one for log in (fast.log, slow.log) for one in log if one.kind is Kind.FINISHED):
        times_s = truth.times_s[event.request_id]
        wanted = sorted(after - before for before, after in pairwise(times_s))
        assert event.gaps is not None
        assert len(event.gaps) == len(wanted)
        np.testing.assert_allclose(event.gaps.each_s(), wanted, rtol=0.0051, atol=1e-9)
        assert event.gaps.longest_s == pytest.approx(max(wanted, default=0.0), abs=1e-12)
        assert event.gaps.total_s == pytest.approx(times_s[-1] - times_s[0], abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "claim",
    [
        test_gaps_are_those_between_the_times_of_tokens,
        test_strides_and_single_steps_agree_on_every_event_time_and_block,
        test_moving_sequences_together_changes_nothing,
    ],
    ids=lambda claim: str(claim.__name__),
)
@examples(400)
@given(data=st.data(), cost=COSTS)
def test_so_it_is_for_many_more(claim: Any, data: st.DataObject, cost: LinearCost) -> None:
    claim.hypothesis.inner_test(data, cost)


def sorted_at(log: list[Event]) -> list[tuple[float, str, str]]:
    """Answers that end in the same step may be reported in any order."""
    return sorted((event.time_s, event.kind.value, event.request_id) for event in log)


def test_a_long_answer_takes_few_turns() -> None:
    bounds = Limits(block_size=16, blocks=10_000, max_num_seqs=8, max_batched_tokens=2048, max_model_len=100_000)
    cost = LinearCost(base_s=1e-3, context_token_s=1e-9)
    arrivals = [(0.0, Job(f"r{index}", 100, 10_000 + index)) for index in range(8)]
    timeline = Timeline(arrivals)
    engine = timeline.run(bounds, cost, closed_form=True)
    assert engine.generated_tokens == 8 * 10_000 + 28
    assert timeline.turns < 25
