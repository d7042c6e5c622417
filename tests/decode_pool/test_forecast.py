"""Grants by forecast: what all gateways are promised stays within the worker's capacity, and comes back."""

import numpy as np
import pytest

from decode_pool.expected import Admission
from decode_pool.ledger import Load
from gateway.policy.admission import ReserveLimit
from gateway.policy.estimate.estimate import POINTS, Estimate
from proto.reservation import Refusal, RefusalReason, Reservation, ReserveRequest
from tests.decode_pool.granting import Worker
from tests.gateway.policy.admission.families import lognormal


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
