"""What `loadgen simulate --reproduce NAME` does."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from loadgen.failure import LoadgenError
from loadgen.plan.lines import EVERY_S, Lines
from loadgen.reproduce.crossover import crossings
from loadgen.reproduce.document import document
from loadgen.reproduce.gates import gates
from loadgen.reproduce.map import COARSE, FINE, SUBJECTS, Grid, map_cases, map_cells, steady_cells
from loadgen.reproduce.map_files import save_map, show_map
from loadgen.reproduce.pool import Watch, run_cases
from loadgen.reproduce.show import save, show
from loadgen.reproduce.splits_command import reproduce_splits
from loadgen.reproduce.studies import studies

SCALING, MAP, SPLITS = NAMES = ("inference-scaling", "layout-map", "pool-splits")
FAILED = 1


@dataclass(frozen=True, slots=True)
class Options:
    """`share` of every batch (below 1 for a quick look: the gates are meant for 1); `out` is a folder for files.

    `host_us` is a what-if: microseconds of the engine's process for each sequence of a step, the same in every run."""

    seed: int = 1
    jobs: int = 1
    share: float = 1.0
    out: Path | None = None
    quiet: bool = False
    host_us: float = 0.0
    fine: bool = False
    quick: bool = False


def reproduce(name: str, options: Options, console: Console) -> int:
    """Prints published next to simulated. Returns 0, or 1 when a gate fails. Raises LoadgenError for other names."""
    if name not in NAMES:
        raise LoadgenError(f"nothing to reproduce under {name!r}; known: {', '.join(NAMES)}")
    if options.jobs < 1:
        raise LoadgenError(f"jobs={options.jobs} is not at least 1")
    if not 0 <= options.host_us < math.inf:
        raise LoadgenError(f"host-us={options.host_us:g} is not a time")
    if name == MAP:
        return draw_map(options, console)
    if name == SPLITS:
        with progress("pools", options.quiet) as watch:
            return reproduce_splits(options.jobs, options.out, watch, console, quick=options.quick)
    if not 0 < options.share <= 1:
        raise LoadgenError(f"share={options.share:g} is not above 0 and at most 1")
    chosen = [study.scaled(options.share, options.host_us) for study in studies()]
    cases = [row.case for study in chosen for row in study.rows]
    with progress("simulating batches", options.quiet) as watch:
        runs = run_cases(cases, options.seed, jobs=options.jobs, watch=watch)
    found = gates(runs, options.seed, options.share, options.host_us)
    data = document(chosen, runs, found, options.seed, options.share, options.host_us)
    show(console, data)
    if options.out is not None:
        for path in save(options.out, data):
            console.print(f"wrote {path}", highlight=False)
    return 0 if all(gate.passed for gate in found) else FAILED


def draw_map(options: Options, console: Console, grid: Grid | None = None) -> int:
    """Which layout wins where. The coarse map is some 650 batches, minutes on one core; the fine one takes hours."""
    chosen = grid or (FINE if options.fine else COARSE)
    with progress("drawing the map", options.quiet) as watch:
        runs = run_cases(map_cases(chosen), options.seed, jobs=options.jobs, watch=watch)
    with progress("limits of endless streams", options.quiet) as watch:
        cells = [*map_cells(chosen, runs), *steady_cells(chosen, options.seed, watch=watch)]
    sizes = crossings(cells)
    show_map(console, cells, sizes)
    if options.out is not None:
        for path in save_map(options.out, cells, sizes, SUBJECTS, options.seed):
            console.print(f"wrote {path}", highlight=False)
    return 0


@contextmanager
def progress(label: str, quiet: bool, every_s: float = EVERY_S) -> Iterator[Watch]:
    """On stderr: a bar where that is a terminal, lines where it is not."""
    console = Console(stderr=True)
    if not (quiet or console.is_terminal):
        lines = Lines(lambda line: print(line, file=sys.stderr, flush=True))
        lines(label)
        with lines.again_and_again(every_s):
            yield lambda done, total: lines(label, done, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=quiet) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
