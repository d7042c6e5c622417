"""Which limits apply to which request: defaults, and overrides by class and by output-length bucket."""

from collections.abc import Iterable
from dataclasses import dataclass

from loadgen.buckets import BUCKETS
from loadgen.failure import LoadgenError
from loadgen.result import SIMULATED, Result
from loadgen.slo.constraint import Constraint, parse_goodput, value_ms


@dataclass(frozen=True, slots=True)
class Rule:
    """Limits for the requests of one class and/or bucket; empty means any."""

    constraints: tuple[Constraint, ...]
    klass: str = ""
    bucket: str = ""

    def applies(self, result: Result) -> bool:
        return (not self.klass or self.klass == result.klass) and (not self.bucket or self.bucket == result.bucket)


@dataclass(frozen=True, slots=True)
class Check:
    """One limit held against one request. `value_ms` is None when the metric does not apply to it."""

    constraint: Constraint
    value_ms: float | None

    @property
    def held(self) -> bool:
        return self.value_ms is None or self.value_ms <= self.constraint.limit_ms


@dataclass(frozen=True, slots=True)
class Policy:
    """Absolute limits per request. A later rule overrides an earlier one for the same metric."""

    rules: tuple[Rule, ...] = ()
    name: str = ""
    source: str = ""

    @property
    def form(self) -> str:
        return "absolute limits per request"

    def constraints_for(self, result: Result) -> tuple[Constraint, ...]:
        chosen: dict[str, Constraint] = {}
        for rule in self.rules:
            if rule.applies(result):
                chosen.update({constraint.metric: constraint for constraint in rule.constraints})
        return tuple(chosen.values())

    def checks(self, result: Result) -> tuple[Check, ...]:
        """Raises LoadgenError where a limit is on gaps between tokens and a simulation has kept none."""
        constraints = self.constraints_for(result)
        unknown = result.tokens_from == SIMULATED and result.completed and result.gaps is None
        if unknown and any(c.metric.startswith("itl") for c in constraints):
            raise LoadgenError("SLO: this simulation keeps no gaps between tokens; use ttft, tpot and e2el")
        return tuple(Check(c, value_ms(c.metric, result)) for c in constraints)

    def scaled(self, factor: float) -> "Policy":
        """DistServe's SLO scale: one factor on all limits; smaller is stricter."""
        rules = tuple(Rule(tuple(c.scaled(factor) for c in r.constraints), r.klass, r.bucket) for r in self.rules)
        return Policy(rules, self.name, self.source)

    def describe(self) -> list[str]:
        """One line a rule, for reports."""
        lines = []
        for rule in self.rules:
            where = " ".join(
                w for w in (rule.klass and f"class {rule.klass}", rule.bucket and f"outputs {rule.bucket}") if w
            )
            lines.append(f"{where or 'all'}: {' '.join(map(str, rule.constraints))}")
        return lines


def build_policy(default: Iterable[str], by_class: Iterable[str] = (), by_bucket: Iterable[str] = ()) -> Policy:
    """From the command line: `ttft:200 tpot:20`, `CLASS=ttft:…`, `BUCKET=tpot:…`."""
    rules = []
    constraints = parse_goodput(default)
    if constraints:
        rules.append(Rule(constraints))
    for text in by_class:
        klass, limits = _scoped(text, "CLASS=ttft:200")
        rules.append(Rule(limits, klass=klass))
    for text in by_bucket:
        bucket, limits = _scoped(text, "0-500=tpot:20")
        if bucket not in BUCKETS:
            raise LoadgenError(f"SLO: unknown output bucket {bucket!r}; known are {', '.join(BUCKETS)}")
        rules.append(Rule(limits, bucket=bucket))
    return Policy(tuple(rules))


def _scoped(text: str, example: str) -> tuple[str, tuple[Constraint, ...]]:
    scope, equals, limits = text.partition("=")
    constraints = parse_goodput([limits])
    if not equals or not scope or not constraints:
        raise LoadgenError(f"SLO: {text!r} is not of the form {example!r}")
    return scope, constraints
