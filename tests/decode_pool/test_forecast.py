"""Grants by forecast: what all gateways are promised stays within the worker's capacity, and comes back."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from decode_pool.expected import Admission
from decode_pool.hold import Hold
from decode_pool.ledger import Ledger, Load, Shape
from gateway.policy.admission import ReserveLimit
from gateway.policy.admission.move import EMERGENCY_STEPS
from gateway.policy.estimate.estimate import POINTS, Estimate
from proto.reservation import Refusal, RefusalReason, Reservation, ReserveRequest
from tests.decode_pool.ledger_machine import LedgerMachine
from tests.examples import examples
from tests.gateway.policy.admission.families import lognormal

SHAPE = Shape(blocks_total=400, block_size_tokens=16, slots_total=64, max_model_len=4_096)
NO_POOL = Admission(epsilon=0.01, pool_share=0.0, spread=0.0, learn=False)


@dataclass
class Worker:
    admission: Admission = NO_POOL
    shape: Shape = SHAPE
    now: float = 0.0
    asked: int = 0
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.shape, lambda: self.now, "w", self.admission)

    def forward(self, seconds: float) -> None:
        self.now += seconds

    def ask(
        self,
        estimate: Estimate | None,
        prompt: int = 160,
        sequences: int = 1,
        gateway: str = "g1",
        growth: int = 1_000,
        arrival_s: float = 0.0,
        load: Load | None = None,
        others_first: bool = False,
        generated: int = 0,
        emergency: bool = False,
        moves: bool = False,
    ) -> Reservation | Refusal:
        """`generated`: of the prompt."""
        self.asked += 1
        request = ReserveRequest(
            gateway,
            f"r{self.asked}",
            prompt,
            growth,
            10.0,
            sequences,
            () if estimate is None else tuple(estimate.lengths.tolist()),
            2_000,
            arrival_s=arrival_s,
            generated_tokens=generated,
            emergency=emergency,
            moves=moves or emergency,
        )
        return self.ledger.reserve(request, load or Load(), others_first=others_first)

    def fill(self, estimate: Estimate | None) -> list[str]:
        """The reservations that two gateways get between them, until neither gets any more."""
        granted: list[str] = []
        while isinstance(reply := self.ask(estimate, gateway=f"g{1 + self.asked % 2}"), Reservation):
            granted.append(reply.reservation_id)
        assert reply.reason is RefusalReason.KV_BUSY
        return granted

    def start(self, reservation_id: str, tokens: int = 160) -> Hold:
        grant = self.ledger.grants.named(reservation_id)
        assert grant is not None
        hold = self.ledger.start(reservation_id, grant.request.gateway_id, tokens)
        assert hold is not None
        return hold


def test_an_estimate_admits_more_than_the_declared_growth_and_less_than_everything() -> None:
    declared, known = len(Worker().fill(None)), len(Worker().fill(Estimate.exactly(100)))
    assert declared == 400 // -(-(160 + 1_000) // 16)
    assert known == 400 // -(-(160 + 100) // 16)


def test_two_gateways_are_counted_together_and_the_refusal_says_why() -> None:
    worker = Worker(Admission(epsilon=0.01, pool_share=0.1, spread=0.0, learn=False))
    worker.fill(lognormal(200, 0.5))
    refusal = worker.ask(lognormal(200, 0.5), gateway="g3")
    assert isinstance(refusal, Refusal)
    assert refusal.peak_blocks > refusal.limit_blocks == 360
    assert 0.01 < refusal.risk < 1
    assert refusal.peak_step > 0
    assert worker.ledger.promised_blocks(Load()) <= 360
    assert refusal.blocks_needed > 0
    # Without the pool it would have been admitted: that is the pool's price.
    report = worker.ledger.pool_report(Load())
    assert (report.size_blocks, report.used_blocks) == (40, 0)
    assert report.delayed_requests == 2  # this one, and the one that ended the filling


def test_the_pool_is_drawn_on_by_what_answers_really_hold() -> None:
    worker = Worker(Admission(epsilon=0.01, pool_share=0.1, spread=0.0, learn=False))
    holds = [worker.start(name) for name in worker.fill(Estimate.exactly(100))]
    assert len(holds) == 21  # of 17 blocks: 357 of 360
    for tokens, used in ((99, 0), (20, 21 * 18 - 360), (400, 40)):
        for hold in holds:
            hold.advance(tokens)
        assert worker.ledger.pool_report(Load()).used_blocks == used


def test_blocks_reserved_are_those_held_and_growth_is_only_promised() -> None:
    worker = Worker()
    reply = worker.ask(Estimate.exactly(1_000))
    assert isinstance(reply, Reservation)
    ledger = worker.ledger
    assert (ledger.reserved_blocks, reply.blocks) == (11, 73)
    assert ledger.promised_blocks(Load()) == 73
    hold = worker.start(reply.reservation_id)
    hold.advance(500)
    assert ledger.reserved_blocks == ledger.recounted() == -(-660 // 16)
    assert ledger.promised_blocks(Load(blocks_used=42)) == pytest.approx(73, abs=1)
    hold.end()
    assert (ledger.reserved_blocks, ledger.promised_blocks(Load()), len(ledger.expected)) == (0, 0, 0)


def test_growth_that_turns_out_not_to_be_needed_makes_room() -> None:
    worker = Worker()
    holds = [worker.start(name) for name in worker.fill(lognormal(200, 0.8))]
    for hold in holds[: len(holds) // 2]:
        hold.end()
    assert isinstance(worker.ask(lognormal(200, 0.8)), Reservation)


def test_survival_shifts_the_promise() -> None:
    worker = Worker()
    two_way = Estimate.of_samples([100] * 9 + [1_900])
    holds = [worker.start(name) for name in worker.fill(two_way)]
    before = worker.ledger.outlook(Load()).mean_peak_blocks
    for hold in holds:
        hold.advance(120)  # every one of them is a long one
    assert worker.ledger.outlook(Load()).mean_peak_blocks > 3 * before
    assert isinstance(worker.ask(two_way), Refusal)


def test_whoever_tends_the_forecast_leaves_no_curve_to_draw_for_a_reservation() -> None:
    worker = Worker()
    holds = [worker.start(name) for name in worker.fill(lognormal(200, 0.5))]
    book = worker.ledger.expected.book
    for _ in range(30):
        for hold in holds:
            hold.advance(1)
        worker.ledger.tend()
        assert not book.due
    assert book.now >= 24


def test_what_the_engine_uses_beyond_its_answers_is_not_promised_again() -> None:
    worker = Worker()
    assert isinstance(worker.ask(Estimate.exactly(100), load=Load(blocks_used=390)), Refusal)
    assert isinstance(worker.ask(Estimate.exactly(100), load=Load(blocks_used=383)), Reservation)
    assert isinstance(worker.ask(None, growth=10, load=Load(blocks_used=383)), Refusal)  # 17 are promised


def test_an_estimate_of_no_tokens_at_all_spoils_nobodys_forecast() -> None:
    """Its end was expected infinitely often, and from then on all lengths were taken to be eight times as long."""
    worker = Worker(Admission(epsilon=0.01, pool_share=0.0, spread=0.0, learn=True))
    reply = worker.ask(Estimate(np.zeros(POINTS, dtype=np.int64)))
    assert isinstance(reply, Reservation)
    hold = worker.start(reply.reservation_id)
    for _ in range(40):
        hold.advance(16)
        worker.ledger.outlook(Load())
    hold.end()
    error = worker.ledger.expected.error
    assert np.isfinite([error.expected, error.seen, error.stretch, error.spread]).all()


def test_kv_that_is_expected_in_the_far_future_is_not_promised_for_nothing() -> None:
    """Beyond the horizon of the forecast it took no room at all; a slow prefill or a wrong speed is enough for that."""
    worker, soon = Worker(), len(Worker().fill(Estimate.exactly(100)))
    granted = 0
    while isinstance(worker.ask(Estimate.exactly(100), arrival_s=1e9, load=Load(step_time_s=0.01)), Reservation):
        granted += 1
    assert granted == soon


def test_a_prompt_that_is_asked_for_again_and_again_waits_for_the_pool_once() -> None:
    """A gateway asks every tenth of a second, each time by another name: the price of the pool grew with the asking."""
    worker = Worker(Admission(epsilon=0.01, pool_share=0.1, spread=0.0, learn=False))
    worker.fill(lognormal(200, 0.5))
    lengths = tuple(lognormal(200, 0.5).lengths.tolist())
    for asks in range(1, 6):
        request = ReserveRequest("g1", f"waits-7-r{asks}", 160, 1_000, 10.0, 1, lengths, 2_000)
        assert isinstance(worker.ledger.reserve(request, Load()), Refusal)
    assert worker.ledger.pool_report(Load()).delayed_requests == 2  # and the one that ended the filling


@pytest.mark.parametrize("estimate", [Estimate.exactly(100), None], ids=["forecast", "declared"])
def test_who_leaves_room_to_others_is_told_what_it_would_have_been_promised(estimate: Estimate | None) -> None:
    worker = Worker()
    refusal, granted = worker.ask(estimate, others_first=True), worker.ask(estimate)
    assert isinstance(refusal, Refusal)
    assert isinstance(granted, Reservation)
    assert (refusal.reason, refusal.blocks_needed) == (RefusalReason.KV_BUSY, granted.blocks)
    assert worker.ledger.reservations == 1
    assert worker.ledger.pool_report(Load()).delayed_requests == 0  # it is not the pool that it waits for


def test_what_never_fits_is_told_so_whoever_comes_first() -> None:
    refusal = Worker().ask(None, prompt=3_000, growth=4_000, others_first=True)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is RefusalReason.NEVER_FITS


def test_declared_growth_and_forecasts_share_one_capacity() -> None:
    worker = Worker()
    assert isinstance(worker.ask(None, growth=5_000), Reservation)  # 323 blocks
    assert len(worker.fill(Estimate.exactly(100))) == 77 // 17
    assert isinstance(worker.ask(None, growth=200), Refusal)


def test_several_answers_share_the_prompt_and_are_promised_each_its_growth() -> None:
    worker = Worker()
    reply = worker.ask(Estimate.exactly(100), prompt=168, sequences=3)
    assert isinstance(reply, Reservation)
    assert worker.ledger.promised_blocks(Load()) == reply.blocks == 10 + 3 * 7
    holds = [worker.start(reply.reservation_id, 168) for _ in range(3)]
    for hold, left in zip(holds, (10 + 2 * 7, 10 + 7, 0), strict=True):
        hold.end()
        assert worker.ledger.promised_blocks(Load()) == left


def test_an_answer_that_gave_nothing_is_promised_again() -> None:
    worker = Worker()
    reply = worker.ask(Estimate.exactly(100))
    assert isinstance(reply, Reservation)
    worker.start(reply.reservation_id).end(returned=True)
    assert worker.ledger.promised_blocks(Load()) == 17
    worker.start(reply.reservation_id).end()
    assert worker.ledger.promised_blocks(Load()) == 0


def test_an_answer_larger_than_the_worker_never_fits_and_says_so_at_once() -> None:
    worker = Worker()
    worker.fill(Estimate.exactly(100))
    refusal = worker.ledger.reserve(
        ReserveRequest("g", "r", 3_000, 10, 9.0, 4, tuple(Estimate.exactly(2_000).lengths.tolist()), 2_000), Load()
    )
    assert isinstance(refusal, Refusal)
    assert refusal.reason is RefusalReason.NEVER_FITS


def test_an_estimate_that_cannot_be_read_falls_back_to_the_declared_growth(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker()
    for lengths in ((5, 4, 3), tuple(range(33, 0, -1))):
        reply = worker.ledger.reserve(ReserveRequest("g", "r", 160, 100, 9.0, 1, lengths), Load())
        assert isinstance(reply, Reservation)
    assert worker.ledger.reserved_blocks == 2 * 17
    assert len(caplog.records) == 1


def test_an_answer_in_prefill_is_expected_when_its_kv_arrives() -> None:
    worker = Worker()
    load = Load(step_time_s=0.02)
    assert isinstance(worker.ask(Estimate.exactly(100), arrival_s=2.0, load=load), Reservation)
    assert worker.ledger.expected.book.rows.started[0] == 100


def test_another_rule_can_be_put_in_place() -> None:
    worker = Worker(Admission(pool_share=0.0, rule=ReserveLimit()))
    assert len(worker.fill(Estimate.exactly(100))) == 400 // -(-(160 + 2_001) // 16)


def test_r08_an_answer_that_leaves_a_worker_without_kv_needs_room_for_what_it_holds_and_no_promise() -> None:
    worker = Worker()
    holds = [worker.start(name) for name in worker.fill(Estimate.exactly(800))]  # of 60 blocks at the end, 11 now
    assert len(holds) == 6
    ledger = worker.ledger
    assert isinstance(worker.ask(Estimate.exactly(800), prompt=960, generated=100), Refusal)
    reply = worker.ask(Estimate.exactly(800), prompt=960, generated=100, emergency=True)
    assert isinstance(reply, Reservation)
    assert ledger.reserved_blocks == ledger.recounted() == 6 * 11 + 61
    assert ledger.promised_blocks(Load()) > SHAPE.blocks_total  # it counts against newcomers as everything else does
    worker.start(reply.reservation_id, 960).end()
    assert ledger.reserved_blocks == 6 * 11
    assert ledger.promised_blocks(Load()) <= SHAPE.blocks_total


def test_an_emergency_is_refused_where_those_that_run_would_run_out_a_moment_later() -> None:
    worker, long = Worker(), Estimate.exactly(3_900)
    alone = worker.ask(long)
    assert isinstance(alone, Reservation)
    worker.start(alone.reservation_id).advance(3_000)  # 198 blocks
    moment = -(-2 * EMERGENCY_STEPS // 16)
    most = 16 * (400 - 198 - moment) - 1
    refusal = worker.ask(long, prompt=most + 1, generated=most - 99, emergency=True)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is RefusalReason.KV_BUSY
    assert worker.ledger.pool_report(Load()).delayed_requests == 0  # nobody waits for the pool
    assert isinstance(worker.ask(long, prompt=most, generated=most - 100, emergency=True), Reservation)


def test_the_pool_keeps_nobody_waiting_who_goes_on_elsewhere() -> None:
    """Its price is who would have been let in without it, and waits: not the same answer again, each time that it may move."""
    worker = Worker(Admission(epsilon=0.01, pool_share=0.1, spread=0.0, learn=False))
    worker.fill(lognormal(200, 0.5))
    for moves, delayed in ((True, 1), (False, 2)):  # and the one that ended the filling
        assert isinstance(worker.ask(lognormal(200, 0.5), moves=moves), Refusal)
        assert worker.ledger.pool_report(Load()).delayed_requests == delayed


def test_an_emergency_comes_before_those_to_whom_room_is_left() -> None:
    worker = Worker()
    assert isinstance(worker.ask(Estimate.exactly(100), others_first=True), Refusal)
    assert isinstance(worker.ask(Estimate.exactly(100), others_first=True, emergency=True), Reservation)


def outgrown(admission: Admission) -> tuple[Worker, list[Hold]]:
    """A worker whose answers all go on beyond what was known of them."""
    worker = Worker(admission)
    holds = [worker.start(name) for name in worker.fill(Estimate.exactly(100))]
    for _ in range(40):
        for hold in holds:
            hold.advance(16)
        worker.ledger.tend()
    return worker, holds


def test_a_worker_without_room_whose_answers_cannot_leave_finds_out_until_one_of_them_does() -> None:
    """One that comes from elsewhere says nothing: its own engine may hand nothing over, or nobody's window be large enough."""
    worker, holds = outgrown(Admission(spread=0.0))
    expected = worker.ledger.expected
    assert expected.caution.accepted == 0.04
    assert expected.budget.epsilon < 0.04
    worker.ask(Estimate.exactly(800), prompt=960, generated=100, emergency=True)
    assert expected.caution.accepted == 0.04
    careful = expected.budget.epsilon
    holds[0].end(moves=True)
    assert expected.caution.accepted == 0.12
    assert expected.budget.epsilon > careful


def test_a_worker_accepts_what_was_declared_whether_its_answers_can_leave_or_not() -> None:
    worker, _ = outgrown(Admission(epsilon=0.2, spread=0.0))
    assert worker.ledger.expected.caution.accepted == 0.2


def test_an_emergency_of_declared_growth_needs_that_and_no_room_beyond_promises() -> None:
    worker = Worker()
    for name in worker.fill(Estimate.exactly(1_000)):
        worker.start(name)
    assert isinstance(worker.ask(None, growth=600), Refusal)
    assert isinstance(worker.ask(None, growth=600, emergency=True), Reservation)
    assert isinstance(worker.ask(None, growth=6_000, emergency=True), Refusal)


@pytest.mark.parametrize("arrival_s", [0.0, 5.0])
def test_an_answer_that_goes_on_is_as_old_as_it_is(arrival_s: float) -> None:
    """It is expected to end as those of its age that began here, whether its KV comes late or at once."""
    stayed, came = Worker(), Worker()
    estimate, load = lognormal(200, 1.0), Load(step_time_s=0.02)
    begun = stayed.ask(estimate)
    assert isinstance(begun, Reservation)
    stayed.start(begun.reservation_id).advance(480)
    reply = came.ask(estimate, prompt=640, generated=480, arrival_s=arrival_s, load=load)
    assert isinstance(reply, Reservation)
    for _ in range(40):  # others decode meanwhile
        came.ledger.expected.book.progress(16)
    came.ledger.expected.book.refresh()
    came.start(reply.reservation_id, 640)
    for worker in (stayed, came):
        worker.ledger.tend()
        worker.ledger.expected.book.refresh()
    rows = came.ledger.expected.book.rows
    assert (rows.prompt[0], rows.generated(came.ledger.expected.book.now)[0], rows.limit[0]) == (160, 480, 2_000)
    assert came.ledger.expected.book.totals == pytest.approx(stayed.ledger.expected.book.totals)


class TwoGateways(LedgerMachine):
    """Any order of what two gateways may do."""

    def __init__(self) -> None:
        self.worker = Worker(Admission(epsilon=0.01, pool_share=0.05, spread=0.1))
        super().__init__(self.worker.ledger, self.worker.forward)

    @rule(
        median=st.integers(20, 300),
        prompt=st.integers(1, 400),
        sequences=st.integers(1, 3),
        gateway=st.sampled_from(["g1", "g2"]),
        estimated=st.booleans(),
        arrival_s=st.floats(0, 5),
    )
    def reserve(
        self, median: int, prompt: int, sequences: int, gateway: str, estimated: bool, arrival_s: float
    ) -> None:
        ledger, load = self.ledger, Load(step_time_s=0.02)
        ledger.expire()
        alone = not ledger.reservations
        estimate = lognormal(median, 0.6) if estimated else None
        reply = self.worker.ask(estimate, prompt, sequences, gateway, median * sequences, arrival_s, load)
        if isinstance(reply, Reservation):
            self.open.append(reply.reservation_id)
            pool = ledger.expected.budget.pool_blocks if len(ledger.expected) else 0
            assert alone or ledger.promised_blocks(load) <= SHAPE.blocks_total - pool + 1e-6
            assert ledger.committed(load) <= SHAPE.blocks_total

    @rule(generated=st.integers(0, 2_000), prompt=st.integers(1, 400), estimated=st.booleans())
    def emergency(self, generated: int, prompt: int, estimated: bool) -> None:
        """Whatever was promised, more is not held than there is. Afterwards that may be promised to nobody else."""
        ledger, load = self.ledger, Load(step_time_s=0.02)
        estimate = lognormal(200, 0.6) if estimated else None
        tokens = prompt + generated
        reply = self.worker.ask(estimate, tokens, growth=16, load=load, generated=generated, emergency=True)
        if isinstance(reply, Reservation):
            self.open.append(reply.reservation_id)
            assert ledger.committed(load) <= SHAPE.blocks_total

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.open))
        grant = self.ledger.grants.named(name)
        if grant is not None:
            hold = self.ledger.start(name, grant.request.gateway_id, grant.request.prompt_tokens)
            if hold is not None:
                self.holds.append(hold)

    @rule(tokens=st.integers(1, 30))
    def step(self, tokens: int) -> None:
        for hold in self.holds:
            hold.advance(tokens)

    @invariant()
    def the_book_and_the_grants_agree(self) -> None:
        ledger = self.ledger
        grants = [grant for grant in ledger.grants if grant.forecast]
        assert len(ledger.expected) == len(ledger.expected.book) == sum(g.unstarted + len(g.live) for g in grants)
        assert ledger.reserved_blocks == ledger.recounted() >= 0
        assert ledger.charges.certain == sum(grant.charge.certain for grant in ledger.grants)
        assert ledger.charges.waiting == sum(grant.charge.waiting for grant in ledger.grants)

    def teardown(self) -> None:
        super().teardown()
        ledger = self.ledger
        assert (ledger.reservations, ledger.reserved_blocks, ledger.live, len(ledger.expected)) == (0, 0, 0, 0)
        assert (ledger.charges.certain, ledger.charges.waiting, ledger.expected._running) == (0, 0, 0)
        assert ledger.promised_blocks(Load()) == 0
        assert not ledger.expected.book.totals.any()


TestTwoGateways = TwoGateways.TestCase
TestTwoGateways.settings = examples(40, stateful_step_count=30)
