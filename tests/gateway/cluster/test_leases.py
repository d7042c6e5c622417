"""Load is the set of live leases (B-45)."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.cluster.leases import Lease, LeaseBook, LeaseKind
from gateway.cluster.worker import Worker
from gateway.config import HealthConfig
from proto.reservation import Refusal, RefusalReason
from tests.examples import examples
from tests.gateway.cluster.facts import Clock, state
from tests.workers import worker_info


def test_giving_back_twice_is_harmless() -> None:
    book = LeaseBook(Clock())
    lease = book.take(LeaseKind.PREFILL, "r", ttl_s=1, tokens=10)
    assert book.tokens(LeaseKind.PREFILL) == 10
    assert [book.give_back(lease) for _ in range(3)] == [True, False, False]
    assert (len(book), book.tokens(LeaseKind.PREFILL)) == (0, 0)


def test_a_lease_past_its_deadline_is_reported() -> None:
    clock = Clock()
    book = LeaseBook(clock)
    lease = book.take(LeaseKind.TICKET, "r", ttl_s=5)
    assert book.overdue() == []
    clock.now_s += 6
    assert book.overdue() == [lease]


def test_places_in_the_batch_that_other_gateways_take_are_not_free() -> None:
    worker = Worker(worker_info(), "a:1", HealthConfig(), Clock(), lambda before, after, reason: None, lambda: None)
    worker.leases.take(LeaseKind.RESERVATION, "r", ttl_s=10, slots=2)
    worker.leases.take(LeaseKind.SEQUENCE, "r", ttl_s=10)
    worker.heard(state(attached_gateways=2, sequences=4))
    assert worker.as_decode(0).slots_free == 8 - 2 - 3
    worker.heard(state(attached_gateways=1, sequences=4))  # of answers of its own that had not ended then
    assert worker.as_decode(0).slots_free == 8 - 2


class Books(RuleBasedStateMachine):
    """Any interleaving of requests and state snapshots: the figures are those of what is really held."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        moved = lambda before, after, reason: None  # noqa: E731
        self.worker = Worker(worker_info(), "a:1", HealthConfig(), self.clock, moved, lambda: None)
        self.held: list[Lease] = []

    @property
    def taken(self) -> int:
        return sum(lease.blocks for lease in self.held if lease.kind is LeaseKind.RESERVATION)

    @rule(kind=st.sampled_from(LeaseKind), size=st.integers(1, 9))
    def take(self, kind: LeaseKind, size: int) -> None:
        slots = size if kind is LeaseKind.RESERVATION else 0
        self.held.append(self.worker.leases.take(kind, "r", ttl_s=10, tokens=size, blocks=size, slots=slots))

    @rule(which=st.integers(0, 100))
    def answer_in_part(self, which: int) -> None:
        promised = [lease for lease in self.held if lease.kind is LeaseKind.RESERVATION]
        if promised:
            self.worker.leases.answered(promised[which % len(promised)])

    @rule(which=st.integers(0, 100), twice=st.booleans())
    def give_back(self, which: int, twice: bool) -> None:
        if self.held:
            lease = self.held.pop(which % len(self.held))
            self.worker.leases.give_back(lease)
            if twice:
                self.worker.leases.give_back(lease)

    @rule()
    def hear(self) -> None:
        """The worker's ledger agrees with what this gateway holds: no other gateway is around."""
        self.worker.heard(state(blocks_reserved=self.taken))

    @rule(size=st.integers(1, 9))
    def be_refused(self, size: int) -> None:
        asked = self.worker.leases.take(LeaseKind.RESERVATION, "r", ttl_s=10, blocks=size, slots=size)
        refusal = Refusal(RefusalReason.KV_BUSY, size, 100, 0, self.taken, 8, 0)
        self.worker.refused(refusal, asked)

    @invariant()
    def figures_are_the_truth(self) -> None:
        book = self.worker.leases
        for kind in LeaseKind:
            mine = [lease for lease in self.held if lease.kind is kind]
            assert book.count(kind) == len(mine)
            assert book.tokens(kind) == sum(lease.tokens for lease in mine)
        assert self.worker.blocks_free == 100 - self.taken
        promised = sum(lease.slots for lease in self.held if lease.kind is LeaseKind.RESERVATION)
        assert self.worker.as_decode(0).slots_free == 8 - promised - book.count(LeaseKind.PREFILL)
        assert self.worker.as_prefill().outstanding_tokens == book.tokens(LeaseKind.PREFILL)


TestBooks = Books.TestCase
TestBooks.settings = examples(60, stateful_step_count=30)


def test_b54_admission_looks_at_the_larger_of_used_and_reserved() -> None:
    moved = lambda before, after, reason: None  # noqa: E731
    worker = Worker(worker_info(), "a:1", HealthConfig(), Clock(), moved, lambda: None)
    worker.heard(state(blocks_used=99, blocks_reserved=2))
    assert worker.blocks_free == 1
    worker.heard(state(blocks_used=2, blocks_reserved=98))
    assert worker.blocks_free == 2


def test_a_refusal_closes_the_worker_until_something_changes() -> None:
    clock = Clock()
    moved = lambda before, after, reason: None  # noqa: E731
    worker = Worker(worker_info(), "a:1", HealthConfig(), clock, moved, lambda: None)
    for reopen in ("time", "news", "release"):
        other = worker.leases.take(LeaseKind.RESERVATION, "o", ttl_s=1, blocks=1)
        asked = worker.leases.take(LeaseKind.RESERVATION, "r", ttl_s=1, blocks=1)
        worker.refused(Refusal(RefusalReason.SLOTS_BUSY, 1, 100, 0, 1, 8, 8), asked)
        assert worker.as_decode(0).closed
        if reopen == "time":
            clock.now_s += 1
        elif reopen == "news":
            worker.heard(state())
        worker.leases.give_back(other)
        assert not worker.as_decode(0).closed
