"""Answers that go on at another worker: what room they find there, and what a worker learns of those that cannot."""

import pytest

from decode_pool.expected import Admission
from decode_pool.hold import Hold
from decode_pool.ledger import Load
from gateway.policy.admission.move import EMERGENCY_STEPS
from gateway.policy.estimate.estimate import Estimate
from proto.reservation import Refusal, RefusalReason, Reservation
from tests.decode_pool.granting import SHAPE, Worker
from tests.gateway.policy.admission.families import lognormal


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
