"""Prefill and decode engines in virtual time, with the hand-off between them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.cost import Link, load_profile
from engine.simulated.cost.linear import LinearCost
from engine.simulated.job import Event, Job, Kind
from engine.simulated.limits import Limits
from engine.simulated.setup import limits_of
from engine.simulated.time_account import TimeAccount
from engine.simulated.virtual import VirtualEngine
from engine.simulated.virtual_fleet import VirtualFleet
from tests.engine.simulated.timeline import Timeline
from tests.examples import examples

LIMITS = Limits(block_size=16, blocks=400, max_num_seqs=16, max_batched_tokens=512, max_model_len=4096)
COST = LinearCost(base_s=1e-3, token_s=1e-5, context_token_s=1e-7)
LINK = Link(bytes_per_s=1e9, latency_s=1e-3)
BLOCK_BYTES = 1_000_000


class Split:
    """The plainest policy: prefill on the least busy writer, decode on the reader with the fewest requests."""

    def __init__(
        self, jobs: list[tuple[float, int, int]], *, closed_form: bool = True, drop: frozenset[int] = frozenset()
    ):
        names = ("p0", "p1", "d0", "d1")
        self.fleet = VirtualFleet({name: VirtualEngine(LIMITS, COST, closed_form=closed_form) for name in names})
        self.jobs = {f"r{index}": job for index, job in enumerate(jobs)}
        self.log: list[tuple[str, Event]] = []
        self.live = dict.fromkeys(names, 0)
        self.drop = {f"r{index}" for index in drop}
        for name, (at, prompt, _) in self.jobs.items():
            self.fleet.at(at, lambda name=name, prompt=prompt: self.arrive(name, prompt))  # type: ignore[misc]  # mypy infers no lambda with a default

    def arrive(self, name: str, prompt: int) -> None:
        writer = min("p0", "p1", key=lambda engine: self.live[engine])
        self.live[writer] += 1
        self.fleet.submit(writer, Job(name, prompt, 1, hold=True))

    def hear(self, engine: str, event: Event) -> None:
        self.log.append((engine, event))
        if event.kind is Kind.HELD:
            self.live[engine] -= 1
            reader = min("d0", "d1", key=lambda name: self.live[name])
            self.live[reader] += 1
            _, prompt, answer = self.jobs[event.request_id]
            job = Job(event.request_id, prompt + 1, answer, external=prompt)
            self.fleet.pull(reader, job, writer=engine, held=event.request_id, link=LINK, block_bytes=BLOCK_BYTES)
            if event.request_id in self.drop:
                self.fleet.at(self.fleet.now_s + 2e-3, lambda: self.fleet.abort(reader, event.request_id))
        if event.kind is Kind.FINISHED:
            self.live[engine] -= 1

    def run(self) -> "Split":
        self.fleet.run(self.hear)
        assert all(engine.scheduler.pool.used == 0 for engine in self.fleet.engines.values())
        assert not len(self.fleet.network)
        return self

    def time_of(self, name: str, kind: Kind, engine: str) -> float:
        return next(
            e.time_s for who, e in self.log if e.request_id == name and e.kind is kind and who.startswith(engine)
        )


def test_one_request_takes_prefill_latency_transfer_and_decode() -> None:
    split = Split([(0.5, 100, 11)]).run()
    prefilled = split.time_of("r0", Kind.HELD, "p")
    assert prefilled == pytest.approx(0.5 + COST.step_s(0, 0, [(100, 0)]))
    started = split.time_of("r0", Kind.STARTED, "d")
    assert started == pytest.approx(prefilled + LINK.transfer_s(7 * BLOCK_BYTES))
    assert split.time_of("r0", Kind.FINISHED, "d") == pytest.approx(started + COST.decode_run_s(1, 101, 11))
    assert split.fleet.moved_bytes == 7 * BLOCK_BYTES


def test_transfers_share_the_busier_port() -> None:
    split = Split([(0.0, 160, 5), (0.0, 160, 5), (0.0, 160, 5), (0.0, 160, 5)]).run()
    waits = [split.time_of(f"r{i}", Kind.STARTED, "d") - split.time_of(f"r{i}", Kind.HELD, "p") for i in range(4)]
    alone = LINK.transfer_s(10 * BLOCK_BYTES)
    assert max(waits) > 1.8 * alone
    assert min(waits) >= alone * 0.999


def test_everything_ends_and_nothing_is_left_with_many_requests_and_aborts() -> None:
    rng = random.Random(3)
    jobs = [(rng.random() * 5, rng.randrange(1, 900), rng.randrange(1, 300)) for _ in range(300)]
    drop = frozenset(rng.sample(range(300), 40))
    split = Split(jobs, drop=drop).run()
    finished = {event.request_id for _, event in split.log if event.kind is Kind.FINISHED}
    assert {f"r{index}" for index in range(300) if index not in drop} <= finished


@examples(40)
@given(
    jobs=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 900), st.integers(1, 200)), min_size=1, max_size=25),
    drop=st.frozensets(st.integers(0, 24), max_size=4),
)
def test_strides_and_single_steps_agree(jobs: list[tuple[float, int, int]], drop: frozenset[int]) -> None:
    strides = Split(jobs, drop=drop, closed_form=True).run()
    steps = Split(jobs, drop=drop, closed_form=False).run()
    assert strides.log == steps.log


@pytest.mark.parametrize("closed_form", [True, False])
def test_r53_time_is_accounted_by_cause_and_adds_up(closed_form: bool) -> None:
    profile = load_profile("h200-sxm/llama-3.1-70b?tp=8")
    timeline = Timeline([(0.1 * i, Job(f"r{i}", 2000, 400)) for i in range(20)], account=TimeAccount())
    engine = timeline.run(limits_of(profile), profile.cost, closed_form=closed_form)
    account = timeline.account
    assert account is not None
    assert account.total_s == pytest.approx(engine.busy_s, rel=1e-3)
    assert 0.02 < account.collective_share < 0.6
    assert 0 < account.prefill_s < engine.busy_s
