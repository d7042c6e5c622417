"""Estimates against what came (R-04, R-09, R-50)."""

import numpy as np
import pytest

from gateway.policy.estimate import Estimate, FinishedBy, Knobs, Ledger
from tests.gateway.policy.estimate.draws import lognormal

KEY = ("m", "-", "a")
UNIFORM = Estimate.of_samples(range(1, 1001))


def ledger(estimate: Estimate, lengths: list[int], finished_by: FinishedBy = FinishedBy.STOP) -> Ledger:
    book = Ledger(Knobs())
    for tokens in lengths:
        book.record(KEY, estimate, tokens, finished_by, 0.0)
    return book


def test_what_is_over_and_under_the_reservation_is_counted_in_requests_and_tokens() -> None:
    account = ledger(UNIFORM, [400, 900, 1000]).account(KEY)
    reserved = UNIFORM.quantile(0.9)
    assert reserved == 900
    assert (account.under_requests, account.under_tokens) == (1, 100)
    assert (account.over_requests, account.over_tokens) == (1, 500)


def test_right_estimates_fill_the_pit_evenly_and_burn_the_budget_once() -> None:
    account = ledger(UNIFORM, np.random.default_rng(0).integers(1, 1001, 4000).tolist()).account(KEY)
    assert min(account.pit) > 320
    assert max(account.pit) < 480
    assert account.under_burn(0.1) == pytest.approx(1, abs=0.2)
    assert account.realised_to_estimated == pytest.approx(1, abs=0.05)


def test_a_doctored_estimate_spends_the_budget() -> None:
    account = ledger(Estimate.of_samples(range(1, 101)), list(range(1, 1001))).account(KEY)
    assert account.under_burn(0.1) > 8
    assert account.pit[-1] > 800
    assert account.realised_to_estimated is not None
    assert account.realised_to_estimated > 9
    over = ledger(Estimate.of_samples(range(1, 10_001)), list(range(1, 1001))).account(KEY)
    assert over.over_burn(1.0) > 10


def test_an_answer_that_its_client_left_says_nothing_unless_it_was_under_already() -> None:
    account = ledger(UNIFORM, [10, 950], FinishedBy.CLIENT_LEFT).account(KEY)
    assert (account.requests, account.left_early) == (2, 2)
    assert (account.under_requests, account.over_requests, account.realised_tokens) == (1, 0, 0)
    assert sum(account.pit) == 0


def test_answers_at_their_cap_count_as_the_capped_estimate_said() -> None:
    account = ledger(UNIFORM.capped(600), [600] * 10, FinishedBy.LENGTH).account(KEY)
    assert (account.under_requests, account.over_requests) == (0, 0)
    assert account.pit[8] + account.pit[7] == 10


@pytest.mark.slow
def test_headroom_rises_when_outputs_double_and_falls_again() -> None:
    book = Ledger(Knobs())
    levels = []
    for scale in (1, 2, 1):
        for tokens in lognormal(500, 0.5, 600, seed=scale):
            book.record(
                KEY, Estimate.of_samples(lognormal(500, 0.5, 5000, seed=9)), tokens * scale, FinishedBy.STOP, 0.0
            )
        levels.append(book.headroom(KEY, 0.0))
    assert levels[0] == pytest.approx(1, abs=0.12)
    assert levels[1] == pytest.approx(2, rel=0.15)
    assert levels[2] == pytest.approx(1, abs=0.12)


def test_headroom_is_one_for_strangers_and_bounded_for_all() -> None:
    assert Ledger(Knobs()).headroom(KEY, 0.0) == 1
    assert ledger(Estimate.exactly(10), [10_000] * 500).headroom(KEY, 0.0) == Knobs().headroom_max


def test_accounts_are_bounded() -> None:
    book = Ledger(Knobs(max_classes=8))
    for number in range(50):
        book.record(("m", "-", str(number)), UNIFORM, 5, FinishedBy.STOP, 0.0)
    assert [key[2] for key, _ in book] == [str(number) for number in range(42, 50)]
