"""Two runs of the same requests, on a real pair and on its simulation, side by side. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from loadgen.measure.distribution import Distribution
from loadgen.result import Result
from loadgen.slo.constraint import Constraint, value_ms
from loadgen.slo.policy import Policy, Rule

METRICS = ("ttft", "tpot", "e2el")
#: Limits on TTFT and TPOT as multiples of their unloaded medians.
SLOS = {"loose": 4.0, "middle": 2.0, "tight": 1.25}
ATTAINMENT_BAR, MEDIAN_BAR = 0.05, 0.10


@dataclass(frozen=True, slots=True)
class Row:
    """One metric in milliseconds on both sides."""

    metric: str
    real: Distribution
    simulated: Distribution

    @property
    def ratio(self) -> float:
        """Simulated over real, of the medians; infinite where one side has none."""
        return self.simulated.p50 / self.real.p50 if self.real.p50 and self.simulated.p50 else float("inf")


@dataclass(frozen=True, slots=True)
class Attainment:
    """The share of offered requests within all limits of one SLO, on both sides."""

    slo: str
    limits: str
    real: float
    simulated: float

    @property
    def points(self) -> float:
        return (self.simulated - self.real) * 100


@dataclass(frozen=True, slots=True)
class Comparison:
    rows: tuple[Row, ...]
    attainment: tuple[Attainment, ...]
    stages: tuple[Row, ...]
    failed: tuple[int, int]
    send_lag_p99_ms: tuple[float, float]

    @property
    def holds(self) -> bool:
        return all(abs(row.ratio - 1) <= MEDIAN_BAR for row in self.rows) and all(
            abs(one.points) <= ATTAINMENT_BAR * 100 for one in self.attainment
        )


def compare(real: Sequence[Result], simulated: Sequence[Result], policies: dict[str, Policy]) -> Comparison:
    """Pure. Requests that did not complete are in no latency and miss every SLO."""
    sides = (real, simulated)
    stages = sorted({name for side in sides for result in side for name, _ in result.stages_s})
    return Comparison(
        rows=tuple(Row(metric, *(latencies(side, metric) for side in sides)) for metric in METRICS),
        attainment=tuple(
            Attainment(name, policy.describe()[0].removeprefix("all: "), *(_attained(side, policy) for side in sides))
            for name, policy in policies.items()
        ),
        stages=(
            *(Row(name, *(_stage(side, name) for side in sides)) for name in stages),
            Row("1st to 2nd", *(Distribution.of(_second_gaps_ms(side)) for side in sides)),
        ),
        failed=(_failed(real), _failed(simulated)),
        send_lag_p99_ms=(_lag(real), _lag(simulated)),
    )


def latencies(results: Sequence[Result], metric: str) -> Distribution:
    values = (value_ms(metric, result) for result in results if result.completed)
    return Distribution.of([value for value in values if value is not None])


def _stage(results: Sequence[Result], name: str) -> Distribution:
    return Distribution.of([s * 1e3 for r in results if r.completed for stage, s in r.stages_s if stage == name])


def _second_gaps_ms(results: Sequence[Result]) -> list[float]:
    """From the first token, which the prefill worker gives, to the second: what the hand-off takes."""
    return [(r.chunk_s[1] - r.chunk_s[0]) * 1e3 for r in results if r.completed and len(r.chunk_s) > 1]


def _attained(results: Sequence[Result], policy: Policy) -> float:
    good = sum(r.completed and all(check.held for check in policy.checks(r)) for r in results)
    return good / len(results) if results else 0.0


def _failed(results: Sequence[Result]) -> int:
    return sum(not result.completed for result in results)


def _lag(results: Sequence[Result]) -> float:
    return Distribution.of([result.send_lag_s * 1e3 for result in results]).p99 or 0.0


def slos(unloaded: Sequence[Result]) -> dict[str, Policy]:
    """Each SLO limits TTFT and TPOT by one multiple of what requests alone in the real pair had."""
    base = [Constraint(metric, latencies(unloaded, metric).p50 or 0.0) for metric in ("ttft", "tpot")]
    found = {}
    for name, factor in SLOS.items():
        limits = tuple(replace(one, limit_ms=round(one.limit_ms * factor, 1)) for one in base)
        found[name] = Policy((Rule(limits),))
    return found
