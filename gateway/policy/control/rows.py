"""What `tandem status` and the metrics show of the policy, as plain values."""

from dataclasses import asdict, dataclass, field
from typing import Self

from gateway.policy.control.buckets import Bucket
from gateway.policy.control.hindsight import Hindsight, Verdict
from gateway.policy.estimate import Account
from gateway.policy.fairness.budget import ClassReport, Measure
from gateway.policy.rejection import RejectReason


@dataclass(frozen=True, slots=True)
class ClassRow:
    """Estimates against what came, of one class. Under and over: beyond or below the 90 % quantile given at admission."""

    klass: str
    requests: int
    left_early: int
    under_requests: int
    under_tokens: int
    over_requests: int
    over_tokens: int
    estimated_tokens: float
    realised_tokens: int
    drifts: int

    @classmethod
    def of(cls, klass: str, account: Account, drifts: int) -> Self:
        return cls(
            klass,
            account.requests,
            account.left_early,
            account.under_requests,
            account.under_tokens,
            account.over_requests,
            account.over_tokens,
            round(account.estimated_tokens, 1),
            account.realised_tokens,
            drifts,
        )


@dataclass(frozen=True, slots=True)
class QueueRow:
    band: str
    klass: str
    waiting: int


@dataclass(frozen=True, slots=True)
class FairRow:
    """`spent`: of each budget of a class, 1 is all of it. `alarms`: those that are spent, by enough requests."""

    klass: str
    requests: int
    slowdown_p50: float | None
    slowdown_p99: float | None
    completion_spent: float
    slowdown_spent: float
    abandonment_spent: float
    alarms: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: ClassReport) -> Self:
        spent = {measure: round(report.spending[measure].spent, 4) for measure in Measure}
        return cls(
            report.klass,
            sum(report.outcomes.values()),
            report.slowdown_p50,
            report.slowdown_p99,
            spent[Measure.COMPLETION],
            spent[Measure.SLOWDOWN],
            spent[Measure.ABANDONMENT],
            tuple([measure.value for measure in report.alarms]),
        )


@dataclass(frozen=True, slots=True)
class BucketRow:
    """Estimates against what came, of the answers of one model that became so long (`answer_tokens`)."""

    model: str
    answer_tokens: str
    answers: int
    left_early: int
    under_answers: int
    under_tokens: int
    over_answers: int
    over_tokens: int
    realised_tokens: int

    @classmethod
    def of(cls, model: str, answer_tokens: str, bucket: Bucket) -> Self:
        return cls(model, answer_tokens, **asdict(bucket))


@dataclass(frozen=True, slots=True)
class EarlyRow:
    """What became of early refusals for one reason, in hindsight (`control.hindsight`)."""

    reason: str
    right: int
    wrong: int
    unjudged: int
    open: int

    @classmethod
    def of(cls, hindsight: Hindsight, reason: RejectReason) -> Self:
        judged = {verdict.value: hindsight.judged[reason, verdict] for verdict in Verdict}
        return cls(reason.value, **judged, open=hindsight.open(reason))


@dataclass(frozen=True, slots=True)
class RolesRow:
    """Fluid roles: prompts by the way that they were sent, who leans to prefill, the law of steps as learnt (s; a step's
    weights, each token computed, each KV token read), and tokens of a step as workers were told."""

    ways: dict[str, int]
    leaning: tuple[str, ...]
    weights_s: float
    token_s: float
    context_s: float
    step_tokens: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MoveRow:
    """Running answers that were to go on at another worker."""

    reason: str
    outcome: str
    count: int


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """`admitted`: requests that the limits have let in and that have not ended. `rejected`: requests by reason."""

    version: str
    rule: str
    lengths: tuple[ClassRow, ...] = ()
    queue: tuple[QueueRow, ...] = ()
    fairness: tuple[FairRow, ...] = ()
    rejected: dict[str, int] = field(default_factory=dict)
    admitted: int = 0
    buckets: tuple[BucketRow, ...] = ()
    early: tuple[EarlyRow, ...] = ()
    roles: RolesRow | None = None
    moves: tuple[MoveRow, ...] = ()
