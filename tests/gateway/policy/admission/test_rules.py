"""Each rule admits what its own account has room for, and ours keeps its word."""

import numpy as np
import pytest

from gateway.policy.admission import (
    AdmissionRule,
    Anything,
    Budget,
    Candidate,
    ErrorBudget,
    KvBook,
    Oracle,
    PastFuture,
    ReserveLimit,
    Verdict,
    mean_rule,
    quantile_rule,
)
from gateway.policy.admission.past_future import peak_blocks
from gateway.policy.estimate.estimate import Estimate
from tests.gateway.policy.admission.families import SIZE, book, drawn, lognormal

TWO_WAY = Estimate(np.array([100] * 16 + [1_000] * 17, dtype=np.int64))
RULES: list[AdmissionRule] = [
    ReserveLimit(),
    mean_rule(),
    Anything(),
    quantile_rule(0.9),
    PastFuture(),
    Oracle(),
    ErrorBudget(Budget(0.01, 0)),
]


def filled(rule: AdmissionRule, estimate: Estimate, limit: int, blocks: int = 2_000, prompt: int = 64) -> KvBook:
    """Admits alike requests until the rule says no."""
    subject = book(blocks)
    while len(subject) < 1_000:
        candidate = Candidate(f"r{len(subject)}", prompt, estimate, limit)
        if not rule.decide(candidate, subject).admitted:
            break
        subject.admit(candidate)
    return subject


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_prompt_larger_than_the_worker_is_never_admitted(rule: AdmissionRule) -> None:
    decision = rule.decide(Candidate("c", 20_000, Estimate.exactly(5), 5), book(1_000))
    assert decision.verdict is Verdict.NEVER


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_small_request_is_admitted_to_an_empty_worker(rule: AdmissionRule) -> None:
    assert rule.decide(Candidate("c", 20, Estimate.exactly(5), 5), book(1_000)).admitted


def test_the_rules_differ_in_how_many_they_admit() -> None:
    admitted = {rule.name: len(filled(rule, TWO_WAY, 4_000)) for rule in RULES if rule.name != "oracle"}
    assert admitted["reserve_max"] == 2_000 // -(-(64 + 4_001) // SIZE)
    assert admitted["quantile_0.9"] == 2_000 // -(-(64 + 1_001) // SIZE)
    # The mean counts an answer that may be short as half a long one, and keeps room for it when it is gone.
    assert admitted["mean"] == 2_000 // -(-(64 + 1 + 391) // SIZE)
    assert admitted["reserve_max"] < admitted["quantile_0.9"] < admitted["mean"] <= admitted["budget"]
    assert admitted["none"] == 1_000


def test_ours_with_exact_lengths_is_the_oracle() -> None:
    exact = Estimate.exactly(700)
    ours, oracle = (len(filled(rule, exact, 700)) for rule in (RULES[-1], Oracle()))
    assert oracle == ours == 2_000 // -(-(64 + 700) // SIZE)


def test_what_ours_admits_is_over_the_limit_no_more_often_than_the_budget_says() -> None:
    random = np.random.default_rng(3)
    epsilon, estimate, rule = 0.05, lognormal(300, 0.8), ErrorBudget(Budget(0.05, 0))
    prompts, subject = random.integers(32, 96, 1_000).astype(np.float64), book(2_000)
    for index, prompt in enumerate(prompts):
        candidate = Candidate(f"r{index}", int(prompt), estimate, 100_000)
        if rule.decide(candidate, subject).admitted:
            subject.admit(candidate)
    held_by = np.array([prompts[int(name[1:])] for name in subject.rows.ids])[:, None]
    steps = np.arange(0, 3_000, 8)
    over = np.zeros((1_000, len(steps)), dtype=bool)
    for run in over:
        ends = drawn(estimate, np.zeros(len(subject)), random)[:, None]
        run[:] = (np.ceil((held_by + steps + 1) / SIZE) * (ends > steps)).sum(axis=0) > subject.blocks_total
    assert 0.5 * epsilon < over.mean(axis=0).max() < 1.4 * epsilon  # at the worst step
    assert over.any(axis=1).mean() < 5 * epsilon  # at any step at all: more, and the pool is there for it


def test_the_pool_and_what_others_hold_are_left_alone() -> None:
    rule = ErrorBudget(Budget(0.01, 400))
    assert len(filled(rule, Estimate.exactly(160), 160)) == 1_600 // 14
    subject = book(2_000)
    subject.fixed_blocks = 1_590
    decision = rule.decide(Candidate("c", 64, Estimate.exactly(160), 160), subject)
    assert decision.verdict is Verdict.WAIT
    assert decision.outlook.limit_blocks == 10


def test_one_that_is_merely_risky_for_an_empty_worker_runs_there_alone() -> None:
    rule = ErrorBudget(Budget(0.01, 0))
    often = Candidate("c", 64, Estimate(np.array([100] * 8 + [1_000] * 25, dtype=np.int64)), 1_000)
    assert rule.decide(often, book(60)).verdict is Verdict.NEVER  # more likely than not too long
    seldom = Candidate("c", 64, Estimate(np.array([100] * 28 + [1_000] * 5, dtype=np.int64)), 1_000)
    assert rule.decide(seldom, book(60)).verdict is Verdict.ADMIT
    occupied = book(60)
    occupied.add("r", 16, Estimate.exactly(100))
    assert rule.decide(seldom, occupied).verdict is Verdict.WAIT


def test_past_future_takes_the_largest_of_all_completions() -> None:
    # By hand: with 10, 20, 30 to go and 5, 3, 1 held: 1 + 30, 1 + 3 + 2 x 20, 1 + 3 + 5 + 3 x 10 tokens.
    peak, step = peak_blocks(np.array([5.0, 3.0, 1.0]), np.array([10.0, 20.0, 30.0]), 1)
    assert (peak, step) == (44.0, 20)


def test_past_future_draws_are_repeatable_and_the_worst_of_many_is_worse() -> None:
    subject = book(2_000)
    for index in range(50):
        subject.add(f"r{index}", 64, lognormal(300, 0.8))
    candidate = Candidate("c", 64, lognormal(300, 0.8), 4_000)
    once, again, worst = (rule.decide(candidate, subject) for rule in (PastFuture(), PastFuture(), PastFuture(16)))
    assert once == again
    assert worst.outlook.peak_blocks > once.outlook.peak_blocks


def test_a_decision_changes_neither_book_nor_candidate() -> None:
    subject = filled(RULES[-1], TWO_WAY, 4_000)
    before = subject.totals.copy()
    for rule in RULES:
        rule.decide(Candidate("c", 64, TWO_WAY, 4_000), subject)
    assert (subject.totals == before).all()
    assert "c" not in subject


def test_a_nonsensical_budget_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="budget"):
        Budget(epsilon=0.7)


def test_r13_long_answers_that_arrive_together_overflow_a_level_and_not_a_risk() -> None:
    # By the level of occupancy 100 prompts fit easily: 100 x 5 of 2,000 blocks.
    random, estimate = np.random.default_rng(11), lognormal(1_500, 0.6)
    by_level, by_risk = book(2_000), book(2_000, spread=0.1)
    rule = ErrorBudget(Budget(0.01, 100))
    for index in range(100):
        candidate = Candidate(f"r{index}", 64, estimate, 32_000)
        if by_level.held_blocks + 5 <= 0.95 * by_level.blocks_total:
            by_level.admit(candidate)
        if rule.decide(candidate, by_risk).admitted:
            by_risk.admit(candidate)
    steps = np.arange(0, 6_000, 16)

    def overflows(subject: KvBook) -> float:
        ends = (drawn(estimate, np.zeros(len(subject)), random)[:, None] for _ in range(200))
        held = [(np.ceil((64 + steps + 1) / SIZE) * (each > steps)).sum(axis=0).max() for each in ends]
        return float((np.array(held) > subject.blocks_total).mean())

    assert overflows(by_level) == 1.0
    assert overflows(by_risk) < 0.02
    assert len(by_risk) > 15
