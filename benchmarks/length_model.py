"""How good the length estimates are, and what they cost.

    python -m benchmarks.length_model [FILE ...] [--switch FILE FILE] [--limit N] [--tpot-ms MS] [--seed N]

FILE is any trace the load generator reads (Azure, BurstGPT, ServeGen, CSV, JSONL, also .gz); without one the synthetic
families are used. Requests come in the order of the trace; an answer is observed when it ends (arrival + length x TPOT), so
a model never knows what a gateway would not. The first half teaches (and trains the learned predictor), the second is scored.
`--switch` replays the first file, then the second, as one class and says when the drift event comes.
"""

import argparse
import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gateway.policy.estimate import Drift, Estimate, Features, FinishedBy, Knobs, LengthModel
from gateway.policy.estimate.knobs import DriftKnobs
from gateway.policy.estimate.stumps import Stumps
from loadgen.demand import Demand
from loadgen.workload.family import shipped
from loadgen.workload.readers import reader

LEVELS = (0.5, 0.9, 0.99)
_FAMILY_ROWS = 12_000
_FAMILY_RATE = 5.0


@dataclass(frozen=True, slots=True)
class Row:
    at_s: float
    ends_s: float
    features: Features
    tokens: int


@dataclass(slots=True)
class Score:
    """`guesses` (n, 5): the quantiles 0.1, 0.5, 0.9, 0.99 and the mean, of each scored request."""

    guesses: list[tuple[float, ...]]
    tokens: list[int]
    drifts: list[Drift]
    estimate_us: list[float]
    observe_us: list[float]

    def line(self, name: str) -> str:
        guesses, tokens = np.asarray(self.guesses), np.asarray(self.tokens, dtype=np.float64)
        losses, covered = [], []
        for column, level in enumerate(LEVELS, 1):
            short = tokens - guesses[:, column]
            losses.append(np.maximum(level * short, (level - 1) * short).mean() / tokens.mean())
            covered.append((short <= 0).mean())
        width = (guesses[:, 2] - guesses[:, 0]).mean() / tokens.mean()
        cells = [f"{100 * loss:6.2f}" for loss in losses] + [f"{100 * share:6.1f}" for share in covered]
        cells += [f"{width:6.2f}", f"{tokens.mean() / guesses[:, 4].mean():6.2f}", f"{len(self.drifts):6d}"]
        cells += [f"{np.median(self.estimate_us):6.1f}", f"{np.percentile(self.estimate_us, 99):6.0f}"]
        cells += [f"{np.median(self.observe_us):6.1f}" if self.observe_us else f"{'-':>6}"]
        return f"{name:22}" + " ".join(cells)


HEADER = f"{'':22}" + " ".join(
    f"{title:>6}"
    for title in (
        "pin50",
        "pin90",
        "pin99",
        "cov50",
        "cov90",
        "cov99",
        "width",
        "ratio",
        "drifts",
        "est",
        "est99",
        "obs",
    )
)
LEGEND = (
    "pin: pinball loss, % of the mean output. cov: % of answers within the quantile. width: (p90 - p10) / mean output.\n"
    "ratio: realised / estimated mean. drifts: events in the whole run. est, est99: µs per estimate, median and p99; "
    "obs: µs per observation, median."
)


class Run:
    """One arm over one trace; `view` is what of the features it may see."""

    def __init__(self, knobs: Knobs, view: Callable[[Features], Features], learn: bool) -> None:
        self._now_s = 0.0
        self._model = LengthModel(knobs, lambda: self._now_s)
        self._view = view
        self._learn = learn

    def score(self, rows: Sequence[Row]) -> Score:
        half = len(rows) // 2
        score = Score([], [], [], [], [])
        running: list[tuple[float, int, Estimate]] = []
        for number, row in enumerate(rows):
            while running and running[0][0] <= row.at_s:
                ends_s, ended, given = heapq.heappop(running)
                self._end(rows[ended], ends_s, given, score)
            self._now_s = row.at_s
            started = time.perf_counter()
            estimate = self._model.estimate(self._view(row.features))
            taken = time.perf_counter() - started
            if number >= half:
                note(score, estimate, row.tokens, taken)
            if self._learn:
                heapq.heappush(running, (row.ends_s, number, estimate))
        return score

    def _end(self, row: Row, ends_s: float, given: Estimate, score: Score) -> None:
        self._now_s = ends_s
        started = time.perf_counter()
        score.drifts += self._model.observe(self._view(row.features), row.tokens, FinishedBy.STOP, given)
        score.observe_us.append(1e6 * (time.perf_counter() - started))


def note(score: Score, estimate: Estimate, tokens: int, taken_s: float) -> None:
    score.guesses.append((*(float(estimate.quantile(q)) for q in (0.1, *LEVELS)), estimate.mean))
    score.tokens.append(tokens)
    score.estimate_us.append(1e6 * taken_s)


def learned(rows: Sequence[Row]) -> Score:
    """Trained on what had ended when the second half began; without the latest, of which only the short had."""
    half = len(rows) // 2
    long_s = float(np.quantile([row.ends_s - row.at_s for row in rows[:half]], 0.99))
    cut_s = rows[half].at_s - long_s
    known = [(row.features, row.tokens) for row in rows[:half] if row.at_s <= cut_s and row.ends_s <= rows[half].at_s]
    predictor = Stumps.train(known)
    score = Score([], [], [], [], [])
    for row in rows[half:]:
        started = time.perf_counter()
        estimate = predictor.predict(row.features)
        taken = time.perf_counter() - started
        assert estimate is not None
        note(score, estimate, row.tokens, taken)
    return score


def everything_the_same(features: Features) -> Features:
    return Features(features.model, 0)


def as_it_is(features: Features) -> Features:
    return features


def compare(name: str, rows: Sequence[Row], seed: int) -> None:
    span_s = rows[-1].at_s - rows[0].at_s
    print(f"\n{name}: {len(rows)} requests over {span_s:.0f} s, {len({r.features.tenant for r in rows})} tenants")
    print(HEADER)
    deaf = Knobs(drift=DriftKnobs(threshold=1e9))
    print(Run(Knobs(), as_it_is, learn=False).score(rows).line("prior only"))
    print(Run(Knobs(), everything_the_same, learn=True).score(rows).line("one global sketch"))
    print(Run(Knobs(), as_it_is, learn=True).score(rows).line("hierarchy"))
    print(Run(deaf, as_it_is, learn=True).score(rows).line("hierarchy, no drift"))
    print(learned(rows).line("learned predictor"))
    mixed = mixed_up(rows, seed)
    alarms = Run(Knobs(), as_it_is, learn=True).score(mixed).drifts
    late = sum(drift.at_s > mixed[len(mixed) // 2].at_s for drift in alarms)
    print(f"false alarms with the rows in random order: {len(alarms)}, {late} of them in the second half")


def mixed_up(rows: Sequence[Row], seed: int) -> list[Row]:
    """The same arrivals with the requests in random order: nothing drifts."""
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    return [
        replace(rows[i], at_s=row.at_s, ends_s=row.at_s + rows[i].ends_s - rows[i].at_s)
        for row, i in zip(rows, order, strict=True)
    ]


def switch(before: Sequence[Row], after: Sequence[Row]) -> None:
    """Both as one class, whatever their labels."""
    model, features = LengthModel(Knobs(), lambda: 0.0), Features("model", 100, "tenant")
    early = [d for row in before for d in model.observe(features, row.tokens, FinishedBy.STOP)]
    print(f"\nswitch after {len(before)} answers, which raised {len(early)} drift events")
    covered: list[bool] = []
    first: dict[str, int] = {}
    for number, row in enumerate(after[:1000], 1):
        covered.append(row.tokens <= model.estimate(features).quantile(0.9))
        for drift in model.observe(features, row.tokens, FinishedBy.STOP):
            first.setdefault("/".join(drift.key), number)
    for name, number in first.items():
        print(f"drift event of class {name} after {number} answers")
    blocks = [f"{100 * np.mean(covered[i : i + 50]):.0f}" for i in range(0, min(400, len(covered)), 50)]
    print(f"share within p90, by 50 answers after the switch: {' '.join(blocks)} %")


def costs(seed: int) -> None:
    """Of one operation, the median of many."""
    lengths = np.rint(np.exp(np.random.default_rng(seed).normal(6, 1, 5000))).astype(np.int64)
    estimate = Estimate.of_samples(lengths)
    print(
        "\nµs, median: "
        + ", ".join(
            f"{name} {median_us(call):.1f}"
            for name, call in (
                ("construct", lambda: Estimate(estimate.lengths)),
                ("quantile", lambda: estimate.quantile(0.9)),
                ("mean", lambda: estimate.mean),
                ("survival", lambda: estimate.survival(700)),
                ("capped", lambda: estimate.capped(600)),
                ("given", lambda: estimate.given(700)),
            )
        )
    )


def median_us(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(1000):
        started = time.perf_counter()
        call()
        taken.append(1e6 * (time.perf_counter() - started))
    return float(np.median(taken))


def rows_of(demands: Sequence[Demand], tpot_s: float) -> list[Row]:
    rows = []
    for number, demand in enumerate(demands):
        at_s = demand.at_s if demand.at_s is not None else number / _FAMILY_RATE
        features = Features("model", demand.prompt_tokens, demand.tenant, demand.klass)
        tokens = max(1, demand.output_tokens)
        rows.append(Row(at_s, at_s + tokens * tpot_s, features, tokens))
    return rows


def from_file(path: str, tpot_s: float, limit: int) -> list[Row]:
    demands, _ = reader.read(Path(path))
    return rows_of(demands[-limit:], tpot_s)


def from_family(name: str, tpot_s: float, seed: int) -> list[Row]:
    chains = shipped()[name].draw(_FAMILY_ROWS, np.random.default_rng(seed))
    return rows_of([demand for chain in chains for demand in chain], tpot_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--switch", nargs=2, metavar="FILE")
    parser.add_argument("--limit", type=int, default=40_000, help="last rows of a file that are used")
    parser.add_argument("--tpot-ms", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tpot_s = options.tpot_ms / 1000
    print(LEGEND)
    costs(options.seed)
    for path in options.files:
        compare(Path(path).name, from_file(path, tpot_s, options.limit), options.seed)
    if options.switch:
        before, after = (from_file(path, tpot_s, options.limit) for path in options.switch)
        switch(before[-5000:], after)
    elif not options.files:
        for name in ("azure-conv", "azure-code", "r1-production", "natural-reasoning"):
            compare(name, from_family(name, tpot_s, options.seed), options.seed)
        old, new = (from_family(name, tpot_s, options.seed) for name in ("azure-conv", "natural-reasoning"))
        switch(old[:5000], new)


if __name__ == "__main__":
    main()
