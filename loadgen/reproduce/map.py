"""Which layout wins: over mean output × spread × batch size, for each model. What the published study could not show.

A layout wins a cell when it finishes the batch first. Cells are independent of the published figures; those only say
which cells look like the paper, by the order of layouts and the size of its quotient.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.simulated.cost import DoesNotFitError
from loadgen.bound import Pool, bound_of
from loadgen.reproduce.batch import MAX_NUM_SEQS, draw
from loadgen.reproduce.case import Case
from loadgen.reproduce.layout import Layout, engine_of, parse_layout
from loadgen.reproduce.lengths import Lognormal
from loadgen.reproduce.pool import Runs, Watch
from loadgen.reproduce.published import Published, quotient, secondary
from loadgen.reproduce.studies import M8, M14, M32, M70, M405, M671

#: How far a quotient may be from the published one to look like it.
NEAR = 0.15
#: The batch of a cell without end: the fluid limit decides, and no last answer is waited for.
STEADY = 0
_SAMPLE = 1000


@dataclass(frozen=True, slots=True)
class Claim:
    """`slower` takes `published` times as long as `faster`."""

    slower: str
    faster: str
    published: Published


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, the layouts that compete on eight GPUs, and what is published about two of them."""

    name: str
    model: str
    billions: float
    layouts: tuple[str, ...]
    claim: Claim | None


_SMALL = ("DP8", "DP4×TP2", "DP2×TP4", "TP8", "PP2×TP4")
_LARGE = ("TP8", "PP2×TP4", "PP4×TP2", "PP8")
SUBJECTS = (
    Subject("8B", M8, 8.0, _SMALL, Claim("PP2×TP4", "DP8", secondary(3.5))),
    Subject("14B", M14, 14.8, _SMALL, Claim("PP2×TP4", "DP8", secondary(3.5))),
    Subject("32B", M32, 32.8, _SMALL, Claim("DP8", "TP8", quotient(6.15, 4.9))),
    Subject("70B", M70, 70.6, ("DP4×TP2", "DP2×TP4", "TP8", "DP4×PP2", "PP2×TP4"), None),
    Subject("405B", M405, 405.0, _LARGE, Claim("PP8", "TP8", quotient(7537, 986))),
    Subject("R1", M671, 671.0, ("TP8", "PP2×TP4", "PP4×TP2"), Claim("TP8", "PP4×TP2", quotient(2047, 1663))),
)


@dataclass(frozen=True, slots=True)
class Grid:
    """The axes: mean output tokens, their coefficient of variation, requests at once."""

    means: tuple[float, ...]
    spreads: tuple[float, ...]
    batches: tuple[int, ...]


COARSE = Grid((250, 1000, 2500, 6000), (0.0, 0.7), (64, 512, 4000))
FINE = Grid(
    (125, 250, 500, 1000, 1500, 2500, 4000, 6000, 10_000), (0.0, 0.35, 0.7, 1.2), (16, 64, 256, 1000, 4000, 10_000)
)


@dataclass(frozen=True, slots=True)
class Cell:
    """`seconds` by layout, those that fit; `ratio` is the claim's quotient here. A steady cell has seconds for each
    1,000 requests of an endless stream, by the bound."""

    subject: str
    mean: float
    spread: float
    batch: int
    seconds: dict[str, float]
    ratio: float | None
    published: float | None

    @property
    def winner(self) -> str:
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def lead(self) -> float:
        """How many times longer the second takes."""
        order = sorted(self.seconds.values())
        return order[1] / order[0] if len(order) > 1 else 1.0

    @property
    def order_as_published(self) -> bool:
        return self.ratio is not None and self.ratio > 1

    @property
    def like_published(self) -> bool:
        """Order and size of the published quotient."""
        return self.ratio is not None and self.published is not None and abs(self.ratio / self.published - 1) <= NEAR

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.subject,
            "mean_output": self.mean,
            "spread_cv": self.spread,
            "batch": self.batch,
            "winner": self.winner,
            "lead": self.lead,
            "ratio": self.ratio,
            "published_ratio": self.published,
            "order_as_published": self.order_as_published,
            "like_published": self.like_published,
            "seconds": self.seconds,
        }


def map_cases(grid: Grid, subjects: Sequence[Subject] = SUBJECTS) -> list[Case]:
    return [case for subject in subjects for point in _points(grid) for case in _cases(subject, *point).values()]


def map_cells(grid: Grid, runs: Runs, subjects: Sequence[Subject] = SUBJECTS) -> list[Cell]:
    return [_cell(subject, *point, runs) for subject in subjects for point in _points(grid)]


def steady_cells(
    grid: Grid, seed: int, subjects: Sequence[Subject] = SUBJECTS, watch: Watch | None = None
) -> list[Cell]:
    """What each layout could do with an endless stream, every batch full: the long run, without a last answer."""
    points = [(subject, mean, spread) for subject in subjects for mean in grid.means for spread in grid.spreads]
    cells = []
    for number, (subject, mean, spread) in enumerate(points):
        demands = draw(Lognormal(mean, spread).workload(), _SAMPLE, seed)
        seconds = {}
        for text in subject.layouts:
            layout = parse_layout(text)
            try:
                profile = replace(engine_of(subject.model, layout), max_num_seqs=MAX_NUM_SEQS)
            except DoesNotFitError:
                continue
            seconds[text] = 1000 / bound_of([Pool(profile, layout.dp)], demands).rate_per_s
        cells.append(_of(subject, mean, spread, STEADY, seconds))
        if watch is not None:
            watch(number + 1, len(points))
    return cells


def _points(grid: Grid) -> list[tuple[float, float, int]]:
    return [(m, s, b) for m in grid.means for s in grid.spreads for b in grid.batches]


def _cases(subject: Subject, mean: float, spread: float, batch: int) -> dict[str, Case]:
    lengths = Lognormal(mean, spread)
    return {text: Case(subject.model, _layout(text), batch, lengths=lengths) for text in subject.layouts}


def _layout(text: str) -> Layout:
    return parse_layout(text)


def _cell(subject: Subject, mean: float, spread: float, batch: int, runs: Runs) -> Cell:
    found = {text: runs[case] for text, case in _cases(subject, mean, spread, batch).items()}
    return _of(subject, mean, spread, batch, {t: run.makespan_s for t, run in found.items() if run is not None})


def _of(subject: Subject, mean: float, spread: float, batch: int, seconds: dict[str, float]) -> Cell:
    claim, ratio = subject.claim, None
    if claim is not None and claim.slower in seconds and claim.faster in seconds:
        ratio = seconds[claim.slower] / seconds[claim.faster]
    published = None if claim is None else claim.published.value
    return Cell(subject.name, mean, spread, batch, seconds, ratio, published)
