"""The five classes of an offered request. They add up to the number offered."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from loadgen.result import Ending, Result
from loadgen.slo.policy import Policy


class Verdict(StrEnum):
    GOOD = "good"
    SLO_MISSED = "slo_missed"
    REJECTED = "rejected"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


_BY_ENDING = {
    Ending.REJECTED: Verdict.REJECTED,
    Ending.FAILED: Verdict.FAILED,
    Ending.TIMED_OUT: Verdict.TIMED_OUT,
    Ending.ABANDONED: Verdict.TIMED_OUT,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A result with its class. `missed` names the limits it broke, `skipped` those that did not apply."""

    result: Result
    verdict: Verdict
    missed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return self.verdict is Verdict.GOOD


def judge(result: Result, policy: Policy) -> Judged:
    """Classes one offered request."""
    if not result.completed:
        return Judged(result, _BY_ENDING[result.ending])
    checks = policy.checks(result)
    missed = tuple(c.constraint.metric for c in checks if not c.held)
    skipped = tuple(c.constraint.metric for c in checks if c.value_ms is None)
    return Judged(result, Verdict.SLO_MISSED if missed else Verdict.GOOD, missed, skipped)


def offered(results: Sequence[Result]) -> list[Result]:
    """What the denominator counts: everything the plan sent and did not itself take back."""
    return [r for r in results if r.ending is not Ending.CANCELLED]


def judge_all(results: Sequence[Result], policy: Policy) -> list[Judged]:
    return [judge(r, policy) for r in offered(results)]
