"""KV that HBM has evicted: where it goes, when it comes back, and what that is worth."""

from dataclasses import replace

import pytest

from engine.simulated.cost.linear import LinearCost
from engine.simulated.host_memory import HostCounters, HostMemory, HostTier, together
from engine.simulated.job import Event, Job, Kind
from engine.simulated.limits import Limits
from engine.simulated.sequence import Sequence, SyntheticKeys
from engine.simulated.virtual import VirtualEngine
from engine.simulated.virtual_fleet import VirtualFleet

COST = LinearCost(base_s=1e-3, token_s=1e-3)
LIMITS = Limits(block_size=4, blocks=20, max_num_seqs=4, max_batched_tokens=1000, max_model_len=1000)
BLOCK_BYTES = 100
TIER = HostTier(size_bytes=50 * BLOCK_BYTES, bytes_per_s=BLOCK_BYTES * 1000.0, latency_s=1e-3)
SHARED = tuple(range(100, 110))


def run(jobs: list[tuple[float, Job]], tier: HostTier | None = TIER) -> tuple[VirtualEngine, list[Event]]:
    host = None if tier is None else HostMemory(tier, COST, LIMITS.block_size, BLOCK_BYTES)
    engine = VirtualEngine(LIMITS, COST, host=host)
    fleet, heard = VirtualFleet({"one": engine}), list[Event]()
    for at_s, job in jobs:
        fleet.at(at_s, lambda job=job: fleet.submit("one", job))  # type: ignore[misc]  # mypy infers no lambda with a default
    fleet.run(lambda name, event: heard.append(event))
    assert engine.scheduler.pool.used == 0
    return engine, heard


def first_s(heard: list[Event], name: str) -> float:
    return next(e.time_s for e in heard if e.request_id == name and e.kind is Kind.FIRST_TOKEN)


#: 11 blocks with a shared beginning of 10, then 19 blocks of somebody else, then the same beginning again.
AGAIN = [(0.0, Job("a", 41, 1, SHARED)), (1.0, Job("b", 75, 1)), (2.0, Job("c", 41, 1, SHARED))]


def test_what_was_evicted_is_loaded_where_that_is_quicker() -> None:
    engine, heard = run(AGAIN)
    assert engine.host is not None
    found = engine.host.counters
    load = next(e for e in heard if e.kind is Kind.LOADING)
    missing = load.blocks
    assert 0 < missing <= 10
    assert load.cached == (10 - missing) * 4
    assert first_s(heard, "c") == pytest.approx(2.0 + TIER.latency_s + missing / 1000.0 + COST.step_s(1, 41))
    assert (found.loads, found.in_bytes, found.loaded_tokens) == (1, missing * BLOCK_BYTES, missing * 4)
    assert found.saved_s == pytest.approx(COST.step_s(0, 0, [(missing * 4, 0)]) - 1e-3 - missing / 1000.0)
    assert not found.harmful
    assert engine.counters.cached_prompt_tokens == 40
    started = next(e for e in heard if e.request_id == "c" and e.kind is Kind.STARTED)
    assert started.cached == 40


def test_a_link_slower_than_computing_is_left_alone_and_said_to_be_harmful() -> None:
    engine, heard = run(AGAIN, replace(TIER, bytes_per_s=BLOCK_BYTES * 10.0))
    without, alone = run(AGAIN, None)
    assert engine.host is not None
    assert engine.host.counters.loads == 0
    assert engine.host.counters.out_bytes > 0
    assert engine.host.counters.harmful
    assert [(e.kind, e.time_s) for e in heard] == [(e.kind, e.time_s) for e in alone]
    assert without.host is None


def test_loads_wait_for_each_other_on_the_link() -> None:
    host = HostMemory(TIER, COST, 4, BLOCK_BYTES)
    assert host.load(10, 0, 5.0) == pytest.approx(5.011)
    assert host.load(10, 0, 5.0) == pytest.approx(5.021)
    assert host.load(1, 0, 9.0) == pytest.approx(9.002)


def test_the_oldest_makes_room_and_nothing_is_written_twice() -> None:
    host = HostMemory(replace(TIER, size_bytes=3 * BLOCK_BYTES), COST, 4, BLOCK_BYTES)
    for key in (1, 2, 1, 3, 4):
        host.evicted(key, 1, False)
    sequence = Sequence("x", 100, SyntheticKeys(1, (1, 3, 4, 2)))
    assert host.beyond(sequence, 0) == 12  # the second went, as the first had been used since
    assert (host.counters.out_bytes, host.counters.dropped_bytes) == (400, 100)
    host.evicted(7, 4, True)
    assert (host.used_bytes, host.counters.dropped_bytes) == (300, 500)


def test_a_preempted_answer_gets_its_own_tokens_back() -> None:
    """Two answers that do not fit together: the later one is preempted, and what others evict of it is not lost."""
    jobs = [(0.0, Job("a", 30, 40)), (0.0, Job("b", 30, 40))]
    fast = replace(TIER, bytes_per_s=1e9, latency_s=0.0)
    engine, heard = run(jobs, fast)
    alone, _ = run(jobs, None)
    assert sum(e.kind is Kind.PREEMPTED for e in heard) > 0
    assert engine.host is not None
    assert engine.host.counters.loaded_tokens > 0
    assert engine.counters.recomputed_tokens < alone.counters.recomputed_tokens
    assert {e.request_id for e in heard if e.kind is Kind.FINISHED} == {"a", "b"}


def test_running_sequences_lose_nothing_to_the_host() -> None:
    engine, _ = run([(0.0, Job("a", 60, 15))])
    assert engine.host is not None
    assert engine.host.counters == HostCounters()


def test_sums_over_engines() -> None:
    one = HostCounters(10, 5, 1, 1, 30, 0.5)
    whole = together([one, HostCounters(10, 5, 0, 1, 0, -1.0)])
    assert whole == HostCounters(20, 10, 1, 2, 30, -0.5)
    assert whole.harmful
    assert whole.tokens_per_byte == 1.0
    assert not together([]).harmful
    assert not HostCounters(out_bytes=1000, in_bytes=10, saved_s=0.1).harmful
    assert HostCounters(out_bytes=1000, in_bytes=9, saved_s=0.1).harmful
