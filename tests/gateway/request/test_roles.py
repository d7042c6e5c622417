"""What the role policy is told of workers."""

from dataclasses import dataclass, replace
from typing import cast

import pytest

from gateway.cluster.cluster import Cluster
from gateway.cluster.worker import Worker
from gateway.config import GatewayConfig, HealthConfig
from gateway.policy.dispatch import Bid
from gateway.policy.prefix import PrefixKey
from gateway.policy.roles import Aims, Fluid
from gateway.policy.routing import Need, Path, Placement
from gateway.request.roles import Roles
from proto.worker import StepTotals
from tests.gateway.cluster.facts import Clock, state
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
