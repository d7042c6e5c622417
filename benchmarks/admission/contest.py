"""Every contender at every load with every seed; figures by contender and load, paired by seed."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from math import isnan
from pathlib import Path

import numpy as np

from benchmarks.admission.contenders import CONTENDERS
from benchmarks.admission.fleet import Service, layout
from benchmarks.admission.trial import Bucket, Figures, judge, run, schedule
from benchmarks.admission.workloads import Workload
from decode_pool.expected import Admission
from loadgen.demand import Demand
from loadgen.measure.interval import t95
from loadgen.workload.spec import Catalogue


@dataclass(frozen=True, slots=True)
class Cell:
    contender: str
    load: float
    seed: int


@dataclass(frozen=True, slots=True)
class Mean:
    """Over seeds; `half` is half of the 95 % interval, nan for a single one."""

    value: float
    half: float

    def __format__(self, spec: str) -> str:
        return f"{self.value:{spec}}" + ("" if isnan(self.half) else f" ± {self.half:{spec}}")


@dataclass(slots=True)
class Contest:
    workload: Workload
    service: Service
    figures: dict[Cell, Figures] = field(default_factory=dict)
    store: Path | None = None
    learnt: bool = True

    def run(
        self, contenders: Sequence[str], loads: Sequence[float], seeds: int, processes: int, ours: Admission | None
    ) -> None:
        """What is known already is not run again."""
        cells = [Cell(name, load, seed) for load in loads for seed in range(1, seeds + 1) for name in contenders]
        with ProcessPoolExecutor(processes) as pool:
            jobs = {
                cell: pool.submit(trial, self.workload, self.service, cell, ours, self.learnt)
                for cell in cells
                if cell not in self.figures
            }
            for cell, job in jobs.items():
                self.figures[cell] = job.result()
                self.keep(cell)

    def remember(self, store: Path) -> None:
        """Takes up what was kept there, and keeps there what comes: one JSON line a trial."""
        self.store = store
        for line in store.read_text().splitlines() if store.exists() else ():
            kept = json.loads(line)
            if (kept["workload"], kept["window"], kept["learnt"]) == self._key:
                figures = dict(kept["figures"], course=tuple(kept["figures"]["course"]))
                figures["buckets"] = tuple(Bucket(**each) for each in figures["buckets"])
                self.figures[Cell(**kept["cell"])] = Figures(**figures)

    @property
    def _key(self) -> tuple[str, list[float], bool]:
        """What else a trial depends on; not the knobs of ours: a store is of one setting."""
        return self.workload.name, [self.workload.window.warm_s, self.workload.window.end_s], self.learnt

    def keep(self, cell: Cell) -> None:
        if self.store is not None:
            names = dict(zip(("workload", "window", "learnt"), self._key, strict=True))
            kept = {**names, "cell": asdict(cell), "figures": asdict(self.figures[cell])}
            with self.store.open("a") as file:
                file.write(json.dumps(kept) + "\n")

    def rows(self) -> dict[tuple[float, str], list[Figures]]:
        rows: dict[tuple[float, str], list[Figures]] = defaultdict(list)
        names = list(CONTENDERS)
        for cell, figures in sorted(self.figures.items(), key=lambda it: (it[0].load, names.index(it[0].contender))):
            rows[cell.load, cell.contender].append(figures)
        return rows

    def share_of(self, name: str, load: float, field: str = "goodput", other: str = "oracle") -> Mean | None:
        """Of the other's figure, seed by seed."""
        mine, theirs = ({c.seed: f for c, f in self.figures.items() if (c.contender, c.load) == (who, load)}
                        for who in (name, other))  # fmt: skip
        pairs = [(getattr(mine[seed], field), getattr(theirs[seed], field)) for seed in mine if seed in theirs]
        shares = [one / two for one, two in pairs if two]
        return mean_of(shares) if shares else None


def mean_of(values: Iterable[float]) -> Mean:
    each = np.array(list(values))
    half = t95(len(each) - 1) * float(each.std(ddof=1)) / np.sqrt(len(each)) if len(each) > 1 else float("nan")
    return Mean(float(each.mean()), float(half))


#: Answers that a gateway has seen before the run, where it has.
LEARNT = 2_000


def earlier(workload: Workload, seed: int) -> list[Demand]:
    rng = np.random.default_rng((seed, 99))
    return [chain[0] for chain in Catalogue(None).mix([workload.words]).draw(LEARNT, rng)]


def trial(
    workload: Workload, service: Service, cell: Cell, ours: Admission | None = None, learnt: bool = True
) -> Figures:
    """`learnt`: lengths are known from 2,000 earlier answers; otherwise they are learnt in the run, from nothing."""
    rate = workload.capacity_per_s * cell.load
    planned = schedule(workload.words, rate, workload.window.end_s, cell.seed, start_full=workload.begun)
    taught = earlier(workload, cell.seed) if learnt else []
    watch, results = run(CONTENDERS[cell.contender], layout(service), planned, ours, taught=taught)
    return judge(watch, results, workload.window, service, (ours or Admission()).pool_share)
