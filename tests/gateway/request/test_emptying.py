"""A worker that is to be emptied: so many answers at a time, to whom there is room, and nobody is asked in vain for ever."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.cluster.leases import LeaseKind
from gateway.cluster.states import PairState
from gateway.policy.admission.drain import AT_ONCE
from gateway.policy.admission.move import By
from gateway.policy.control.controller import Controller
from gateway.policy.estimate import Estimate, Features
from gateway.policy.fleet import Link
from gateway.policy_config import PolicyConfig
from gateway.request.moving import Order, Outcome, Why
from gateway.request.observer import Moved
from gateway.request.overruns import Overruns
from gateway.request.standing import Growing
from proto.worker import Role
from tests.gateway.cluster.facts import state
from tests.workers import worker_info

ANSWERS = 10


class Cluster:
    """d0 drains and has ten answers; d1 and d2 have room for all."""

    def __init__(self) -> None:
        self.members = {name: self._worker(name) for name in ("d0", "d1", "d2")}
        self.told("d0", 1, draining=True)
        for name in ("d1", "d2"):
            self.told(name, 1)
        links = {name: {"d0": Link("tcp", 1e12)} for name in ("d1", "d2")}
        self.pairs = SimpleNamespace(links=links, get=lambda writer, reader: self.pair)
        self.pair: Any = None
        self.config = SimpleNamespace(health=SimpleNamespace(watch_interval_s=0.0))
        self.answers_move: Callable[[Any], bool] = lambda _: False
        self.waiting = 0
        self.listeners: list[Callable[[], None]] = []

    def _worker(self, name: str) -> Any:
        held = {LeaseKind.SEQUENCE: ANSWERS if name == "d0" else 0}
        leases = SimpleNamespace(count=held.__getitem__)
        info = replace(worker_info(name), hands_over=True)
        return SimpleNamespace(
            worker_id=name, info=info, ready=name != "d0", role=Role.DECODE, connection=object(), leases=leases
        )

    def told(self, name: str, sequence: int, *, room: int = 1000, **more: Any) -> None:
        worker = self.members[name]
        facts: dict[str, Any] = {"role": worker.role, "step_time_s": 0.01, "blocks_total": 1000, **more}
        worker.state = state(sequence=sequence, **facts)
        worker.blocks_free = worker.headroom_blocks = room

    def worker(self, name: str) -> Any:
        return self.members.get(name)

    def queued(self) -> int:
        return self.waiting

    def workers(self) -> list[Any]:
        return list(self.members.values())

    def subscribe(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def changed(self) -> None:
        for listener in self.listeners:
            listener()


class Answers:
    """Ten of d0's. `sent`: what each was told last."""

    def __init__(self) -> None:
        self.sent: dict[int, Order] = {}
        self.leaving: set[int] = set()
        self.gone: set[int] = set()
        self.guests: set[int] = set()
        self.been: frozenset[str] = frozenset()
        self.looks = 0

    def growing(self) -> Iterator[Growing]:
        self.looks += 1
        for at in range(ANSWERS):
            if at not in self.gone:
                yield Growing(
                    name=str(at),
                    worker_id="d0",
                    klass="default",
                    prompt_tokens=60,
                    generated_tokens=100,
                    features=Features("m", 60),
                    estimate=Estimate.exactly(500 + at),
                    cap=lambda: None,
                    move=partial(self._move, at),
                    ways=frozenset() if at in self.leaving else frozenset(By),
                    leaving=at in self.leaving,
                    guest=at in self.guests,
                    been=self.been,
                )

    def _move(self, at: int, order: Order) -> None:
        self.sent[at] = order
        self.leaving.add(at)

    def ended(self, at: int, outcome: Outcome) -> Moved:
        """What became of it."""
        order = self.sent[at]
        self.leaving.discard(at)
        if outcome is Outcome.MOVED:
            self.gone.add(at)
        return Moved(str(at), order.why.value, outcome.value, order.by.value, "d0", order.worker_id, 100, {})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def answers() -> Answers:
    return Answers()


def overruns(cluster: Cluster, leaning: tuple[str, ...] = (), drain: str = "move") -> Overruns:
    policy = {"drain": drain, "classes": {"default": {"on_overrun": []}}}
    controller = Controller(PolicyConfig.model_validate(policy), lambda: 0.0)
    return Overruns(cluster, controller, lambda: leaning)  # type: ignore[arg-type]  # a stand-in: it has what is asked of a cluster here


def test_a_few_go_at_a_time_those_with_longest_to_live_first(cluster: Cluster, answers: Answers) -> None:
    one = overruns(cluster)
    with one.watching(answers):
        cluster.changed()
        assert list(answers.sent) == [9, 8, 7, 6]
        assert {order.why for order in answers.sent.values()} == {Why.DRAIN}
        looks = answers.looks
        for _ in range(3):
            cluster.changed()  # leases come and go
        assert answers.looks == looks
        cluster.told("d0", 2, draining=True)
        cluster.changed()
        assert len(answers.sent) == AT_ONCE
        one.moved(answers.ended(7, Outcome.MOVED))
        assert list(answers.sent) == [9, 8, 7, 6, 5]
        while answers.leaving:
            one.moved(answers.ended(min(answers.leaving), Outcome.MOVED))
        assert len(answers.gone) == ANSWERS
    assert one.moves == {(Why.DRAIN, Outcome.MOVED): ANSWERS}


def test_one_that_leaves_late_makes_way_for_one_other_and_not_for_two(cluster: Cluster, answers: Answers) -> None:
    """Its move was over, and is over once more when it has arrived."""
    one = overruns(cluster)
    with one.watching(answers):
        cluster.changed()
        answers.gone.add(9)  # its worker will hand it over all the same
        one.moved(answers.ended(9, Outcome.LATE))
        assert list(answers.sent) == [9, 8, 7, 6, 5]
        one.resumed(answers.sent[9], "d0")
        one.moved(answers.ended(9, Outcome.MOVED))
        assert answers.leaving == {8, 7, 6, 5}


def test_who_has_refused_is_asked_again_when_it_has_spoken(cluster: Cluster, answers: Answers) -> None:
    """Each of the others is asked once, and then nobody: a refusal must not become a stream of them."""
    one = overruns(cluster)
    with one.watching(answers):
        cluster.changed()
        asked = 0
        while answers.leaving:
            asked += 1
            one.moved(answers.ended(min(answers.leaving), Outcome.REFUSED))
        assert asked <= 2 * AT_ONCE
        cluster.told("d0", 2, draining=True)
        cluster.changed()
        assert not answers.leaving
        cluster.told("d2", 2)
        cluster.told("d0", 3, draining=True)
        cluster.changed()
        assert {answers.sent[at].worker_id for at in answers.leaving} == {"d2"}


def test_a_pair_that_is_shaking_hands_is_waited_for_and_one_that_cannot_is_not(
    cluster: Cluster, answers: Answers
) -> None:
    cluster.pairs.links = {}
    one = overruns(cluster)
    with one.watching(answers):
        for sequence, met in enumerate((None, PairState.NEW, PairState.WARMING), start=2):
            cluster.pair = met and SimpleNamespace(state=met)
            cluster.told("d0", sequence, draining=True)
            cluster.changed()
            assert not answers.sent
        cluster.pair = SimpleNamespace(state=PairState.INCOMPATIBLE)
        cluster.told("d0", 9, draining=True)
        cluster.changed()
        assert {order.by for order in answers.sent.values()} == {By.RECOMPUTE}


def test_whose_engine_hands_nothing_over_is_not_waited_for(cluster: Cluster, answers: Answers) -> None:
    cluster.pairs.links = {}
    cluster.members["d0"].info = replace(cluster.members["d0"].info, hands_over=False)
    one = overruns(cluster)
    with one.watching(answers):
        cluster.changed()
        assert {order.by for order in answers.sent.values()} == {By.RECOMPUTE}


def test_workers_that_lean_to_prefill_get_answers_only_where_no_other_has_room(
    cluster: Cluster, answers: Answers
) -> None:
    one = overruns(cluster, leaning=("d1",))
    with one.watching(answers):
        cluster.changed()
        assert [order.worker_id for order in answers.sent.values()] == ["d2"] * AT_ONCE
        for at in sorted(answers.leaving):
            cluster.told("d2", 2, room=0)
            one.moved(answers.ended(at, Outcome.MOVED))
        assert {answers.sent[at].worker_id for at in answers.leaving} == {"d1"}


def test_decode_workers_become_pairs_only_of_one_that_is_to_be_emptied(cluster: Cluster) -> None:
    overruns(cluster)
    assert [cluster.answers_move(worker) for worker in cluster.workers()] == [True, False, False]
    overruns(cluster, drain="wait")
    assert not any(cluster.answers_move(worker) for worker in cluster.workers())


@pytest.mark.parametrize("left", ["answers", "connection", "state"])
def test_what_has_nothing_to_give_is_not_looked_at(cluster: Cluster, answers: Answers, left: str) -> None:
    worker = cluster.members["d0"]
    if left == "answers":
        worker.leases = SimpleNamespace(count=lambda _: 0)
    else:
        setattr(worker, left, None)
    one = overruns(cluster)
    with one.watching(answers):
        cluster.changed()
        assert not answers.sent


def test_a_worker_of_another_role_is_emptied_too(cluster: Cluster, answers: Answers) -> None:
    cluster.told("d0", 2, role=Role.PREFILL)
    one = overruns(cluster)
    with one.watching(answers):
        cluster.changed()
        assert len(answers.sent) == AT_ONCE


def test_guests_of_a_worker_that_leans_go_on_when_another_has_room(cluster: Cluster, answers: Answers) -> None:
    """Those that were there before it leant stay, and so does a guest while prompts wait for the room."""
    one = overruns(cluster, leaning=("d0", "d1"), drain="wait")
    answers.guests = {2, 5}
    with one.watching(answers):
        cluster.waiting = 1
        cluster.told("d0", 2)
        cluster.changed()
        assert not answers.sent
        cluster.waiting = 0
        cluster.changed()
        assert [(at, order.why, order.worker_id) for at, order in answers.sent.items()] == [
            (5, Why.ROOM, "d2"),
            (2, Why.ROOM, "d2"),
        ]


def test_a_guest_does_not_go_where_prompts_are_computed_for_others(cluster: Cluster, answers: Answers) -> None:
    one = overruns(cluster, leaning=("d0", "d1"))
    answers.guests = {2}
    with one.watching(answers):
        cluster.told("d0", 2)
        cluster.told("d2", 2, room=0)
        cluster.changed()
        assert not answers.sent


@pytest.mark.parametrize("draining", [True, False])
def test_a_guest_goes_back_only_where_its_worker_is_to_be_empty(
    cluster: Cluster, answers: Answers, draining: bool
) -> None:
    one = overruns(cluster, leaning=("d0", "d1"))
    answers.guests, answers.been = {2}, frozenset({"d2"})
    with one.watching(answers):
        cluster.told("d0", 2, draining=draining)
        cluster.changed()
        assert bool(answers.sent) is draining


def test_guests_are_guests_of_workers_that_lean(cluster: Cluster, answers: Answers) -> None:
    one = overruns(cluster)
    answers.guests = {2}
    with one.watching(answers):
        cluster.told("d0", 2)
        cluster.changed()
        assert not answers.sent
