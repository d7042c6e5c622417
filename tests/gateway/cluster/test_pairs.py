"""Which pairs may hand over KV."""

from typing import Any

from gateway.cluster.pairs import Pair, PairBook
from gateway.cluster.states import PAIR_TRANSITIONS, PairState
from gateway.config import HealthConfig
from gateway.policy.distance import Distance
from proto.worker import Topology, WarmResult
from tests.gateway.cluster.facts import Clock
from tests.workers import worker_info

GOOD = WarmResult(True, "shm", 0.1, 3e9)
CONFIG = HealthConfig(pair_failures_to_quarantine=2, probe_backoff_s=1, probe_backoff_max_s=4)


class Book:
    def __init__(self) -> None:
        self.clock = Clock()
        self.moves: list[tuple[PairState, str]] = []
        self.pairs = PairBook(
            CONFIG, self.clock, lambda p, d, before, after, reason: self.moves.append((after, reason))
        )

    def warm(self, result: WarmResult = GOOD, **more: Any) -> Pair:
        pair = self.pairs.meet(worker_info("p", **more), worker_info("d"))
        if pair in self.pairs.to_warm():
            self.pairs.warming(pair)
            self.pairs.warmed(pair, result)
        return pair


def test_every_state_is_in_the_table() -> None:
    assert set(PAIR_TRANSITIONS) == set(PairState)


def test_a_pair_is_usable_after_its_hand_shake() -> None:
    pair = Book().warm()
    assert (pair.state, pair.link.transport, pair.bytes_per_s) == (PairState.USABLE, "shm", 3e9)


def test_an_incompatible_pair_is_never_warmed() -> None:
    book = Book()
    assert book.warm(dtype="x").state is PairState.INCOMPATIBLE
    assert book.pairs.to_warm() == []


def test_b51_failing_pairs_are_quarantined_and_tried_again_later_and_later() -> None:
    book = Book()
    pair = book.warm()
    delays: list[int] = []
    for _ in range(4):
        book.pairs.failure("p", "d", "timed out")
        book.pairs.failure("p", "d", "timed out")
        waited = 0
        while not book.pairs.to_warm():
            book.clock.now_s += 1
            waited += 1
        delays.append(waited)
        book.warm()
    assert delays == [1, 2, 4, 4]
    assert pair.state is PairState.USABLE


def test_a_transfer_that_works_starts_the_count_again() -> None:
    book = Book()
    pair = book.warm()
    for _ in range(5):
        book.pairs.failure("p", "d", "timed out")
        book.pairs.success("p", "d")
    assert pair.state is PairState.USABLE


def test_a_failed_hand_shake_quarantines_with_the_reason() -> None:
    pair = Book().warm(WarmResult(False, "", 0, 0, "no route"))
    assert pair.state is PairState.QUARANTINED
    assert "no route" in pair.reason


def test_b51_a_new_epoch_is_a_new_pair() -> None:
    book = Book()
    pair = book.warm()
    again = book.pairs.meet(worker_info("p", epoch="e2"), worker_info("d"))
    assert again is not pair
    assert again.state is PairState.NEW
    assert book.pairs.meet(worker_info("p", epoch="e2"), worker_info("d")) is again
    book.pairs.warmed(pair, GOOD)  # a late answer for the old epoch
    assert again.state is PairState.NEW


def test_forgetting_a_worker_forgets_its_pairs() -> None:
    book = Book()
    book.warm()
    book.pairs.forget("d")
    assert list(book.pairs) == []


def test_a_pair_is_as_far_apart_as_its_workers_say() -> None:
    book, here = Book(), Topology("h1", node="n1", rack="A")
    for worker_id, there in (("d1", here), ("d2", Topology("h2", node="n2", rack="A")), ("d3", Topology("h1"))):
        pair = book.pairs.meet(worker_info("p", topology=here), worker_info(worker_id, topology=there))
        book.pairs.warming(pair)
        book.pairs.warmed(pair, GOOD)
    found = {decode: links["p"].distance for decode, links in book.pairs.links.items()}
    assert found == {"d1": Distance.NODE, "d2": Distance.RACK, "d3": Distance.APART}
