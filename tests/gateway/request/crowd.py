"""Two workers, one of them full, and ten answers that may leave it: what the look at overruns is tried on."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from gateway.policy.admission.move import By
from gateway.policy.control.controller import Controller
from gateway.policy.estimate import Estimate, Features
from gateway.policy.fleet import Link
from gateway.policy_config import PolicyConfig
from gateway.request.moving import Order
from gateway.request.overruns import Overruns
from gateway.request.standing import Growing
from proto.worker import Role
from tests.gateway.cluster.facts import state
from tests.workers import worker_info

POLICY = {"classes": {"default": {"on_overrun": ["cap"], "cap_tokens": 8}}}
CAP_LATER = {"classes": {"default": {"on_overrun": ["cap"], "cap_tokens": 8000}}}
MOVE = {"classes": {"default": {"on_overrun": ["move"]}}}
NEITHER: Mapping[str, Any] = {"classes": {"default": {"on_overrun": []}}}
BALANCE: Mapping[str, Any] = {**NEITHER, "balance": {"above": 0.8, "spread": 0.3}}


class Cluster:
    """Two workers of 100 blocks: ten answers hold all of the first, the second is empty. Whoever is told of a change looks at
    once."""

    def __init__(self) -> None:
        self.full: Any = self._worker("d0")
        self.empty: Any = self._worker("d1")
        self.told(1, held=100)
        self.told(1, held=0, worker=self.empty)
        self.config = SimpleNamespace(health=SimpleNamespace(watch_interval_s=0.0))
        self.pairs = SimpleNamespace(links={"d1": {"d0": Link("tcp", 1e9)}})
        self.answers_move: Callable[[Any], bool] = lambda _: False
        self.listeners: list[Callable[[], None]] = []

    def _worker(self, name: str) -> Any:
        info = replace(worker_info(name), hands_over=True)
        none = SimpleNamespace(count=lambda _: 0)
        return SimpleNamespace(
            worker_id=name, info=info, ready=True, role=Role.DECODE, connection=object(), leases=none
        )

    def told(self, sequence: int, held: int, worker: Any = None) -> None:
        worker, used = worker or self.full, min(2, max(0, held - 98))
        worker.state = state(
            sequence=sequence, blocks_used=held, running=10, pool_blocks=2, pool_blocks_used=used, step_time_s=10.0
        )
        worker.blocks_free = worker.headroom_blocks = max(0, 100 - held)

    def queued(self) -> int:
        return 0

    def workers(self) -> list[Any]:
        return [self.full, self.empty]

    def worker(self, name: str) -> Any:
        return next((each for each in self.workers() if each.worker_id == name), None)

    def subscribe(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def changed(self) -> None:
        for listener in self.listeners:
            listener()


class Answers:
    """Ten answers of 160 tokens that will become twice as long; one that ends gives its lease back, which is news to the whole
    cluster. `looks`: how many times they were gone through."""

    def __init__(self, ways: frozenset[By] = frozenset(By), estimate: Any = None) -> None:
        self.ways = ways
        self.estimate = estimate or Estimate.exactly(260)
        self.looks = 0
        self.ended: set[int] = set()
        self.sent: dict[int, Order] = {}
        self.going: set[int] = set()  # their KV is being read

    def growing(self) -> Iterator[Growing]:
        self.looks += 1
        for at in range(10):
            if at not in self.ended:
                yield Growing(
                    name=str(at),
                    worker_id="d1" if at in self.going else "d0",
                    klass="default",
                    prompt_tokens=60,
                    generated_tokens=100,
                    features=Features("m", 60),
                    estimate=self.estimate,
                    cap=partial(self.ended.add, at),
                    move=partial(self._move, at),
                    ways=frozenset() if at in self.sent else self.ways,
                    leaving=at in self.sent and at not in self.going,
                    left="d0" if at in self.going else "",
                )

    def _move(self, at: int, order: Order) -> None:
        self.sent[at] = order


def overruns(cluster: Cluster, policy: Mapping[str, Any], leaning: tuple[str, ...] = ()) -> Overruns:
    controller = Controller(PolicyConfig.model_validate(policy), lambda: 0.0)
    return Overruns(cluster, controller, lambda: leaning)  # type: ignore[arg-type]  # a stand-in: it has what is asked of it here
