"""The ledger never promises a block twice, refuses with the figures, and ends at zero."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from decode_pool.ledger import MAX_TTL_S, Hold, Ledger, Load, Shape
from proto.reservation import Refusal, RefusalReason, Reservation, ReserveRequest
from tests.decode_pool.ledger_machine import LedgerMachine
from tests.examples import examples
from transfer.ticket import blocks_for

SHAPE = Shape(blocks_total=20, block_size_tokens=16, slots_total=8, max_model_len=1024)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Book:
    clock: Clock = field(default_factory=Clock)
    shape: Shape = SHAPE

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.shape, self.clock)

    def ask(
        self,
        prompt: int = 40,
        growth: int = 20,
        sequences: int = 1,
        ttl_s: float = 10.0,
        gateway: str = "g",
        request: str = "r",
        load: Load | None = None,
    ) -> Reservation | Refusal:
        return self.ledger.reserve(ReserveRequest(gateway, request, prompt, growth, ttl_s, sequences), load or Load())

    def grant(self, prompt: int = 40, growth: int = 20, sequences: int = 1, ttl_s: float = 10.0) -> str:
        reply = self.ask(prompt, growth, sequences, ttl_s)
        assert isinstance(reply, Reservation), reply
        return reply.reservation_id

    def start(self, reservation: str, tokens: int = 40) -> Hold:
        hold = self.ledger.start(reservation, "g", tokens)
        assert hold is not None
        return hold


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([1, 16, 128]))
def test_one_answer_reserves_the_blocks_of_prompt_and_growth_rounded_up(prompt: int, growth: int, size: int) -> None:
    ledger = Ledger(Shape(10_000, size, 8, 10_000), Clock())
    reply = ledger.reserve(ReserveRequest("g", "r", prompt, growth, 1.0), Load())
    assert isinstance(reply, Reservation)
    assert reply.blocks == ledger.reserved_blocks == blocks_for(prompt + growth, size)


def test_b06_several_answers_share_the_full_blocks_of_the_prompt() -> None:
    # 40 tokens are 2 full blocks and 8 tokens more; each of 3 answers adds 10 tokens to its own copy of the rest.
    book = Book()
    reply = book.ask(prompt=40, growth=30, sequences=3)
    assert isinstance(reply, Reservation)
    assert reply.blocks == 2 + 3 * 2


def test_a_request_larger_than_the_worker_never_fits() -> None:
    refusal = Book().ask(prompt=300, growth=21)
    assert refusal == Refusal(RefusalReason.NEVER_FITS, 21, 20, 0, 0, 8, 0)


def test_a_prompt_that_fills_the_window_or_too_many_answers_never_fit() -> None:
    book = Book(shape=Shape(1000, 16, 8, 128))
    assert isinstance(refusal := book.ask(prompt=128, growth=1), Refusal)
    assert refusal.reason is RefusalReason.NEVER_FITS
    assert isinstance(refusal := book.ask(prompt=10, growth=9, sequences=9), Refusal)
    assert refusal.reason is RefusalReason.NEVER_FITS
    assert isinstance(book.ask(prompt=127, growth=1), Reservation)


def test_a_request_that_fits_later_is_refused_as_busy_with_the_numbers() -> None:
    book = Book()
    book.grant(prompt=200, growth=24)
    assert book.ask(prompt=100, growth=12, load=Load(3, 1)) == Refusal(RefusalReason.KV_BUSY, 7, 20, 3, 14, 8, 1)
    assert isinstance(book.ask(prompt=80, growth=16), Reservation)


def test_b54_admission_takes_the_larger_of_used_and_reserved() -> None:
    book = Book()
    book.grant(prompt=60, growth=4)
    assert isinstance(refusal := book.ask(load=Load(blocks_used=17)), Refusal)
    assert (refusal.reason, refusal.blocks_used, refusal.blocks_reserved) == (RefusalReason.KV_BUSY, 17, 4)
    assert isinstance(book.ask(load=Load(blocks_used=16)), Reservation)


def test_work_without_reservations_comes_on_top_of_what_is_reserved() -> None:
    book = Book()
    book.start(book.grant(prompt=60, growth=100), tokens=60)  # reserves 10 blocks, fills 4
    used = Load(blocks_used=12, foreign=True)  # so 8 are somebody else's
    assert book.ledger.committed(used) == 18
    assert book.ledger.committed(Load(blocks_used=12)) == 12
    assert isinstance(book.ask(prompt=40, growth=1, load=used), Refusal)


def test_slots_run_out_before_blocks_do() -> None:
    book = Book()
    for _ in range(8):
        book.grant(prompt=10, growth=6)
    assert book.ask(prompt=10, growth=6) == Refusal(RefusalReason.SLOTS_BUSY, 1, 20, 0, 8, 8, 8)


def test_slots_count_what_the_engine_runs_without_a_reservation() -> None:
    book = Book()
    assert isinstance(refusal := book.ask(load=Load(0, sequences=8)), Refusal)
    assert refusal.reason is RefusalReason.SLOTS_BUSY


def test_an_unused_reservation_ends_by_itself() -> None:
    book = Book()
    reservation = book.grant(ttl_s=10.0)
    book.clock.now += 9.9
    assert book.ledger.expire() == 0
    book.clock.now += 0.2
    assert book.ledger.expire() == 1
    assert (book.ledger.reservations, book.ledger.reserved_blocks) == (0, 0)
    assert book.ledger.start(reservation, "g", 40) is None


def test_a_used_reservation_does_not_expire() -> None:
    book = Book()
    book.start(book.grant(ttl_s=10.0))
    book.clock.now += 1000.0
    assert book.ledger.expire() == 0
    assert book.ledger.reserved_blocks == 4


def test_nobody_can_ask_for_an_endless_reservation() -> None:
    reply = Book().ask(ttl_s=1e9)
    assert isinstance(reply, Reservation)
    assert reply.ttl_s == MAX_TTL_S


def test_a_shorter_grant_than_was_asked_for_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    book = Book()
    for _ in range(2):
        book.ask(ttl_s=1e9)
    assert [record.getMessage() for record in caplog.records] == [
        "reservations last 600 s here unless renewed; 1e+09 s were asked for"
    ]


def test_a_reservation_that_is_renewed_lasts_and_one_that_is_not_does_not() -> None:
    book = Book()
    kept, other = book.grant(ttl_s=10.0), book.grant(ttl_s=10.0)
    for _ in range(5):
        book.clock.now += 4.0
        assert book.ledger.renew(kept, "g")
    assert book.ledger.start(kept, "g", 40) is not None
    assert not book.ledger.renew(other, "g")


def test_only_its_own_gateway_renews_a_reservation_and_only_before_its_release() -> None:
    book = Book()
    reservation = book.grant()
    assert not book.ledger.renew(reservation, "g2")
    assert not book.ledger.renew("no such", "g")
    book.ledger.release(reservation)
    assert not book.ledger.renew(reservation, "g")


def test_a_sequence_that_outgrows_its_share_is_charged_what_it_holds() -> None:
    book = Book()
    hold = book.start(book.grant(prompt=40, growth=8), tokens=40)
    assert book.ledger.reserved_blocks == 3
    for tokens in range(41, 200):
        hold.advance(1)
        assert book.ledger.reserved_blocks == max(3, blocks_for(tokens, 16))
    hold.end()
    assert book.ledger.reserved_blocks == 0


def test_every_answer_that_ends_gives_its_own_part_back() -> None:
    book = Book()
    reservation = book.grant(prompt=40, growth=30, sequences=3)
    holds = [book.start(reservation) for _ in range(3)]
    assert book.ledger.start(reservation, "g", 40) is None
    left = []
    for hold in holds:
        hold.end()
        hold.end()  # twice is harmless
        left.append(book.ledger.reserved_blocks)
    assert left == [6, 4, 0]
    assert book.ledger.reservations == 0


def test_another_gateway_cannot_use_a_reservation() -> None:
    book = Book()
    assert book.ledger.start(book.grant(), "other", 40) is None


def test_release_ends_an_unused_reservation_once() -> None:
    book = Book()
    reservation = book.grant()
    assert book.ledger.release(reservation) is True
    assert book.ledger.release(reservation) is False
    assert book.ledger.release("never was") is False
    assert book.ledger.reserved_blocks == 0


def test_release_under_a_running_sequence_only_ends_the_rest() -> None:
    book = Book()
    reservation = book.grant(prompt=40, growth=20, sequences=2)
    hold = book.start(reservation)
    assert book.ledger.reserved_blocks == 2 + 2 * 2
    assert book.ledger.release(reservation) is True
    assert book.ledger.release(reservation) is False
    assert book.ledger.reserved_blocks == 2 + 2
    assert book.ledger.start(reservation, "g", 40) is None
    hold.end(returned=True)
    assert book.ledger.reservations == 0


def test_a_gateway_that_never_got_the_reply_releases_by_request() -> None:
    book = Book()
    book.ask(request="r1")
    book.ask(request="r1", gateway="other")
    assert book.ledger.release_request("g", "r1") is True
    assert book.ledger.release_request("g", "r1") is False
    assert book.ledger.reserved_blocks == 4
    assert book.ledger.release_request("other", "r1") is True


def test_a_start_that_answered_nothing_may_be_repeated() -> None:
    book = Book()
    reservation = book.grant()
    book.start(reservation).end(returned=True)
    assert book.ledger.reservations == 1
    book.start(reservation).end()
    assert book.ledger.reservations == 0


def test_a_returned_reservation_still_expires() -> None:
    book = Book()
    book.start(book.grant(ttl_s=5.0)).end(returned=True)
    book.clock.now += 5.1
    book.ledger.expire()
    assert book.ledger.reservations == 0


def test_unused_reservations_end_soon_after_their_gateways_stream() -> None:
    book = Book()
    book.grant(ttl_s=100.0)
    hold = book.start(book.grant(ttl_s=100.0))
    book.ledger.abandon("g", grace_s=2.0)
    book.clock.now += 1.0
    assert book.ledger.expire() == 0
    book.clock.now += 1.5
    assert book.ledger.expire() == 1
    assert book.ledger.live == 1
    hold.end()


def test_a_gateway_that_comes_back_in_time_keeps_its_reservations() -> None:
    book = Book()
    book.grant(ttl_s=100.0)
    book.ledger.abandon("g", grace_s=2.0)
    book.ledger.adopt("g")
    book.clock.now += 50.0
    assert book.ledger.expire() == 0


class RandomLives(LedgerMachine):
    """Random lives of reservations against the plainest model of them."""

    def __init__(self) -> None:
        self.book = Book()
        super().__init__(self.book.ledger, self.book.clock.forward)

    @rule(
        prompt=st.integers(1, 200),
        growth=st.integers(1, 100),
        sequences=st.integers(1, 3),
        ttl_s=st.floats(0.1, 20),
        used=st.integers(0, 20),
        foreign=st.booleans(),
    )
    def reserve(self, prompt: int, growth: int, sequences: int, ttl_s: float, used: int, foreign: bool) -> None:
        ledger = self.ledger
        load = Load(used, ledger.live, foreign)
        ledger.expire()
        before, committed = ledger.reserved_blocks, ledger.committed(load)
        reply = self.book.ask(prompt, growth, sequences, ttl_s, load=load)
        if isinstance(reply, Reservation):
            assert committed + reply.blocks <= SHAPE.blocks_total
            assert max(used, before) <= committed
            assert ledger.reserved_blocks == before + reply.blocks
            self.open.append(reply.reservation_id)
        else:
            assert ledger.reserved_blocks == before == reply.blocks_reserved
            if reply.reason is RefusalReason.KV_BUSY:
                assert committed + reply.blocks_needed > SHAPE.blocks_total >= reply.blocks_needed

    @precondition(lambda self: self.open)
    @rule(data=st.data(), extra=st.integers(0, 40))
    def start(self, data: st.DataObject, extra: int) -> None:
        hold = self.ledger.start(data.draw(st.sampled_from(self.open)), "g", 10 + extra)
        if hold is not None:
            self.holds.append(hold)

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), tokens=st.integers(0, 50))
    def advance(self, data: st.DataObject, tokens: int) -> None:
        data.draw(st.sampled_from(self.holds)).advance(tokens)

    @invariant()
    def the_sum_is_the_sum(self) -> None:
        ledger = self.ledger
        assert ledger.reserved_blocks == ledger.recounted() >= 0
        assert ledger.live == len(self.holds)
        assert ledger.reserved_blocks >= sum(hold.blocks for hold in self.holds)


TestLedgerMachine = RandomLives.TestCase
TestLedgerMachine.settings = examples(60, stateful_step_count=40)


@pytest.mark.parametrize("size", [1, 16, 128])
def test_advance_in_one_go_and_token_by_token_charge_the_same(size: int) -> None:
    charges = []
    for steps in ([150], [1] * 150):
        ledger = Ledger(Shape(1000, size, 8, 1000), Clock())
        reply = ledger.reserve(ReserveRequest("g", "r", 33, 10, 10.0), Load())
        assert isinstance(reply, Reservation)
        hold = ledger.start(reply.reservation_id, "g", 33)
        assert hold is not None
        for step in steps:
            hold.advance(step)
        charges.append(ledger.reserved_blocks)
    assert charges[0] == charges[1] == blocks_for(183, size)
