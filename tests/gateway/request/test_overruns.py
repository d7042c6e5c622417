"""Answers that are capped when KV runs out: as many as it takes, and no more."""

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from gateway.policy.control.controller import Controller
from gateway.policy.estimate import Features
from gateway.policy_config import PolicyConfig
from gateway.request.overruns import Growing, Overruns
from tests.gateway.cluster.facts import state
from tests.workers import worker_info

POLICY = {"classes": {"default": {"on_overrun": ["cap"], "cap_tokens": 8}}}


class Cluster:
    """One worker whose ten answers hold all of its 100 blocks. Whoever is told of a change looks at once."""

    def __init__(self) -> None:
        self.worker: Any = SimpleNamespace(worker_id="d0", info=worker_info("d0"), ready=True)
        self.told(1, held=100)
        self.config = SimpleNamespace(health=SimpleNamespace(watch_interval_s=0.0))
        self.listeners: list[Callable[[], None]] = []

    def told(self, sequence: int, held: int) -> None:
        self.worker.state = state(
            sequence=sequence, blocks_used=held, running=10, pool_blocks=2, pool_blocks_used=2, step_time_s=0.01
        )

    def workers(self) -> list[Any]:
        return [self.worker]

    def subscribe(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def changed(self) -> None:
        for listener in self.listeners:
            listener()


class Answers:
    """Ten answers of 160 tokens; one that is capped gives its lease back, which is news to the whole cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.ended: set[int] = set()

    def growing(self) -> Iterator[Growing]:
        for at in range(10):
            if at not in self.ended:
                cap = partial(self.cap, at)
                yield Growing(str(at), "d0", "default", 60, 100, Features("m", 60), cap)

    def cap(self, at: int) -> None:
        self.ended.add(at)


def overruns(cluster: Cluster, controller: Controller) -> Overruns:
    return Overruns(cluster, controller)  # type: ignore[arg-type]  # a stand-in: it has what is asked of a cluster here


def test_one_shortage_is_not_answered_again_before_the_worker_has_spoken_again() -> None:
    cluster = Cluster()
    one = overruns(cluster, Controller(PolicyConfig.model_validate(POLICY), lambda: 0.0))
    answers = Answers(cluster)
    with one.watching(answers):
        cluster.told(1, held=105)
        cluster.changed()
        first = len(answers.ended)
        assert 0 < first < 5
        for _ in range(10):
            cluster.changed()  # the capped ones leave, others come
        assert len(answers.ended) == first
        cluster.told(2, held=105)
        cluster.changed()
        assert len(answers.ended) > first


def test_answers_under_way_are_known_to_be_long_before_any_has_ended() -> None:
    cluster = Cluster()
    now_s = [0.0]
    controller = Controller(PolicyConfig(), lambda: now_s[0])
    with overruns(cluster, controller).watching(Answers(cluster)):
        before = controller.lengths.estimate(Features("m", 60)).quantile(0.1)
        cluster.changed()
        assert not controller.lengths.untold
        now_s[0] += 6.0
        assert controller.lengths.untold
        assert controller.lengths.estimate(Features("m", 60)).quantile(0.1) > before
