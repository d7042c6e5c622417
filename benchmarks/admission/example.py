"""The worked example of docs/admission.md."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from gateway.policy.admission import (
    AdmissionRule,
    Budget,
    Candidate,
    ErrorBudget,
    KvBook,
    PastFuture,
    ReserveLimit,
    mean_rule,
    quantile_rule,
)
from gateway.policy.estimate.estimate import LOOKUP, Estimate

BLOCKS, SIZE, PROMPT, LIMIT = 2_000, 16, 400, 4_096
MEDIAN, SIGMA = 500, 0.8
_LENGTHS = [round(MEDIAN * math.exp(SIGMA * NormalDist().inv_cdf(float(level)))) for level in LOOKUP]
ANSWERS = Estimate(np.array(_LENGTHS, dtype=np.int64)).capped(LIMIT)
BUDGET, SPREAD = Budget(epsilon=0.01, pool_blocks=100), 0.1


def running() -> KvBook:
    """24 requests that began 25 steps apart."""
    book = KvBook(BLOCKS, SIZE, SPREAD)
    for number in range(24):
        book.admit(Candidate(f"r{number}", PROMPT, ANSWERS, LIMIT, generated_tokens=25 * number))
    return book


def candidate(estimate: Estimate = ANSWERS) -> Candidate:
    return Candidate("new", PROMPT, estimate, LIMIT)


@dataclass(frozen=True)
class Row:
    step: int
    mean: float
    deviation: float
    common: float
    high: float


def rows(steps: tuple[int, ...] = (0, 111, 330, 821, 2_042)) -> list[Row]:
    book = running()
    forecast = book.forecast(BUDGET)
    out = []
    for step in steps:
        at = int(np.abs(forecast.steps - step).argmin())
        mean, variance, _, common, _ = book.totals[:, at]
        out.append(Row(int(forecast.steps[at]), mean, float(np.sqrt(variance)), common, float(forecast.high[at])))
    return out


def filled(rule: AdmissionRule, spread: float = SPREAD) -> int:
    """How many alike requests, all new, a rule admits to an empty worker."""
    return len(_fill(KvBook(BLOCKS, SIZE, spread), rule))


def counts() -> dict[str, int]:
    rules: list[AdmissionRule] = [ReserveLimit(), mean_rule(), quantile_rule(0.95), PastFuture(), ErrorBudget(BUDGET)]
    return {rule.name: filled(rule) for rule in rules} | {"budget alone": filled(ErrorBudget(Budget(0.01)), spread=0.0)}


def until_full() -> KvBook:
    """The running worker with as many more as it takes, one after the other."""
    return _fill(running(), ErrorBudget(BUDGET))


def _fill(book: KvBook, rule: AdmissionRule) -> KvBook:
    while rule.decide(ask := Candidate(f"r{len(book)}", PROMPT, ANSWERS, LIMIT), book).admitted:
        book.admit(ask)
    return book


def most_admitted() -> int:
    return len(until_full()) - len(running())
