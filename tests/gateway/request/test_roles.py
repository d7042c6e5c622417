"""What the role policy is told of workers, and of prompts."""

import asyncio
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.cluster.cluster import Cluster
from gateway.cluster.worker import Worker
from gateway.config import GatewayConfig, HealthConfig
from gateway.policy.admission.move import By
from gateway.policy.bid import Bid
from gateway.policy.need import Need
from gateway.policy.prefix import PrefixKey
from gateway.policy.roles import Aims, Fluid
from gateway.policy.routing import Path, Placement
from gateway.request.moving import Move, Order, Step, Why
from gateway.request.roles import Roles, Trip
from proto.worker import StepTotals
from tests.gateway.cluster.facts import Clock, state
from tests.waiting import until
from tests.workers import worker_info


@dataclass
class Workers:
    """As much of a cluster as is asked for."""

    known: dict[str, Worker]
    config: GatewayConfig

    def workers(self) -> list[Worker]:
        return list(self.known.values())

    def worker(self, worker_id: str) -> Worker | None:
        return self.known.get(worker_id)


class Scene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.cluster = Workers({name: self.worker(name) for name in ("a", "b")}, GatewayConfig())
        self.policy = Fluid(Aims(1.0, 0.05), self.clock)
        self.roles = Roles(self.policy, cast(Cluster, self.cluster), self.clock)

    def worker(self, name: str) -> Worker:
        return Worker(worker_info(name), name, HealthConfig(), self.clock, lambda *_: None, lambda: None)

    def takes(self, number: int, tokens: int) -> Trip:
        """Worker a is asked for a place."""
        bid = Bid(str(number), Need(tokens, 10, 1), PrefixKey(range(tokens), ""), arrival=number)
        return self.roles.take(bid, Placement("a", Path.LOCAL, "fluid"), arrives=True)

    async def moves(self, by: By) -> Trip:
        """A running answer of 5,000 tokens gets a place at worker a, after two prompts of 1,000 each."""
        one, two, trip = (self.takes(number, tokens) for number, tokens in enumerate((1000, 1000, 5000)))
        one.computing("a")
        two.computing("a")
        ended = asyncio.get_running_loop().create_future()
        worker = SimpleNamespace(connection=SimpleNamespace(attachment=SimpleNamespace(ended=ended)))
        place: Any = SimpleNamespace(trip=trip, worker=worker, lapsed=asyncio.Event().wait, release=trip.ended)
        source: Any = SimpleNamespace(hand_over=lambda: True, leave=lambda: True)

        async def granted() -> Any:
            return place

        move = Move(Order(Why.BALANCE, "a", by, {}), source, granted, 60.0, lambda *_: None)
        await until(lambda: move.step in (Step.HANDING, Step.HANDED))
        if by is By.TRANSFER:
            move.handed(cast(Any, SimpleNamespace(release=lambda: None)))
        assert move.take()
        return trip

    @property
    def backlog(self) -> int:
        return self.policy.book("a").backlog.tokens

    def heard(self, **totals: int) -> None:
        """Every worker says so, and a look follows."""
        for worker in self.cluster.workers():
            worker.heard(state(totals=StepTotals(**totals)))
        self.clock.now_s += 10.0
        self.roles.look()


def test_what_came_since_is_told_sum_by_sum() -> None:
    before = StepTotals(*range(9))
    after = replace(before, chunk_tokens=before.chunk_tokens + 500, answers=before.answers + 3)
    assert after.since(before) == StepTotals(chunk_tokens=500, answers=3)


def test_workers_that_are_gone_leave_nothing_behind() -> None:
    scene = Scene()
    scene.heard()
    scene.heard(decode_steps=5)
    assert scene.policy.books == {"a", "b"}
    del scene.cluster.known["a"]
    scene.heard(decode_steps=9)
    assert (scene.policy.books, set(scene.roles._seen)) == ({"b"}, {"b"})


@pytest.mark.parametrize("path", [Path.COLOCATED, Path.REMOTE])
def test_a_prompt_that_is_over_does_not_come_back_into_the_books(path: Path) -> None:
    scene = Scene()
    bid = Bid("r", Need(100, 10, 1), PrefixKey(range(100), ""), arrival=1)
    placement = Placement("a", path, "fluid", prefill_id="b" if path is Path.REMOTE else "")
    trip = scene.roles.take(bid, placement, arrives=True)
    trip.computing("b")
    trip.ended()
    trip.computing("a")
    trip.prefilled()
    assert [scene.policy.book(name).promised for name in ("a", "b")] == [0, 0]
    assert [len(scene.policy.book(name).backlog) for name in ("a", "b")] == [0, 0]


async def test_kv_that_is_read_from_another_worker_hides_no_steps_of_the_prompts_there() -> None:
    scene = Scene()
    scene.heard()
    trip = await scene.moves(By.TRANSFER)
    assert scene.backlog == 2000
    scene.heard(chunk_tokens=1000)
    assert scene.backlog == 1000
    trip.moved()
    assert scene.policy.book("a").answers == 1
    scene.heard(chunk_tokens=1900)
    assert scene.backlog == 100


async def test_kv_that_does_not_arrive_is_in_hand_after_all() -> None:
    scene = Scene()
    scene.heard()
    trip = await scene.moves(By.TRANSFER)
    trip.computing("a")
    assert scene.backlog == 7000
    trip.prefilled()
    assert scene.backlog == 2000
    assert scene.policy.book("a").answers == 1


async def test_what_is_computed_anew_is_in_hand_until_its_first_token() -> None:
    scene = Scene()
    scene.heard()
    trip = await scene.moves(By.RECOMPUTE)
    trip.computing("a")
    assert scene.backlog == 7000
    scene.heard(chunk_tokens=7000)
    trip.prefilled()
    assert scene.backlog == 0
