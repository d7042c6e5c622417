"""A running answer that goes on at another engine, in virtual time: as long as it would have been, and nothing left."""

import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.cost import Link
from engine.simulated.cost.linear import LinearCost
from engine.simulated.job import Event, Job, Kind
from engine.simulated.limits import Limits
from engine.simulated.virtual import VirtualEngine
from engine.simulated.virtual_fleet import VirtualFleet
from tests.examples import examples

LIMITS = Limits(block_size=16, blocks=400, max_num_seqs=16, max_batched_tokens=512, max_model_len=4096)
COST = LinearCost(base_s=1e-3, token_s=1e-5, context_token_s=1e-7)
LINK = Link(bytes_per_s=1e9, latency_s=1e-3)


class Moving:
    """Every request begins on one engine; some are moved to the other at a time of their own."""

    def __init__(
        self, jobs: list[tuple[float, int, int]], moves: dict[int, float], *, closed_form: bool = True
    ) -> None:
        self.fleet = VirtualFleet({name: VirtualEngine(LIMITS, COST, closed_form=closed_form) for name in ("a", "b")})
        self.jobs = {f"r{index}": job for index, job in enumerate(jobs)}
        self.log: list[tuple[str, Event]] = []
        self.given: dict[str, int] = {}
        self.taken: dict[str, bool] = {}
        for name, (at, prompt, answer) in self.jobs.items():
            self.fleet.at(at, partial(self.fleet.submit, "a", Job(name, prompt, answer)))
        for index, at in moves.items():
            self.fleet.at(at, partial(self.move, f"r{index}"))

    def move(self, name: str) -> None:
        self.taken[name] = self.taken.get(name, False) or self.fleet.hand_over("a", name)

    def hear(self, engine: str, event: Event) -> None:
        self.log.append((engine, event))
        if event.kind is Kind.HELD:
            _, prompt, answer = self.jobs[event.request_id]
            total = event.tokens
            given = self.given[event.request_id] = total - prompt
            assert (total - 1) % LIMITS.block_size
            job = Job(event.request_id, total, answer - given, external=total - 1)
            self.fleet.pull("b", job, writer="a", held=event.request_id, link=LINK, block_bytes=1_000)

    def run(self) -> "Moving":
        self.fleet.run(self.hear)
        assert all(engine.scheduler.pool.used == 0 for engine in self.fleet.engines.values())
        generated = sum(engine.generated_tokens for engine in self.fleet.engines.values())
        assert generated == sum(answer for _, _, answer in self.jobs.values())
        return self

    def where(self, name: str, kind: Kind) -> list[str]:
        return [engine for engine, event in self.log if (event.request_id, event.kind) == (name, kind)]


def test_it_ends_at_its_next_token_and_goes_on_elsewhere() -> None:
    one = Moving([(0.0, 100, 200)], {0: 0.1}).run()
    assert one.taken == {"r0": True}
    assert (one.where("r0", Kind.HELD), one.where("r0", Kind.FINISHED)) == (["a"], ["b"])
    assert 0 < one.given["r0"] < 200
    moved = next(event.time_s for _, event in one.log if event.kind is Kind.HELD)
    assert 0.1 <= moved < 0.1 + 3 * COST.step_s(1, 200, [])


def test_what_has_not_begun_or_is_about_to_end_goes_on_as_it_was() -> None:
    one = Moving([(0.0, 100, 1), (1.0, 100, 50)], {0: 0.0, 1: 0.5}).run()
    assert one.taken == {"r0": False, "r1": False}
    assert not one.given


@pytest.mark.parametrize("closed_form", [True, False])
def test_many_move_and_no_token_is_lost(closed_form: bool) -> None:
    draw = random.Random(1)
    jobs = [(draw.random(), draw.randrange(1, 400), draw.randrange(100, 400)) for _ in range(60)]
    moves = {index: jobs[index][0] + 0.1 + draw.random() for index in range(0, 60, 2)}
    one = Moving(jobs, moves, closed_form=closed_form).run()
    assert len(one.given) > 10
    assert all(one.where(name, Kind.FINISHED) == (["b"] if name in one.given else ["a"]) for name in one.jobs)


@examples(40)
@given(
    jobs=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 900), st.integers(1, 200)), min_size=1, max_size=20),
    moves=st.dictionaries(st.integers(0, 19), st.floats(0, 1.5), max_size=8),
)
def test_strides_and_single_steps_agree(jobs: list[tuple[float, int, int]], moves: dict[int, float]) -> None:
    known = {index: at for index, at in moves.items() if index < len(jobs)}
    strides, steps = (Moving(jobs, known, closed_form=closed).run() for closed in (True, False))
    assert strides.log == steps.log
