"""`tandem plan crossover`: the question in words, its answers, and what is left in a folder."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console

from loadgen.failure import LoadgenError
from loadgen.folder import need_writable
from loadgen.plan.crossover.curve import Crossing, Point, Setting, Task, crossing, curve, point
from loadgen.plan.crossover.dense import Sizes
from loadgen.plan.crossover.variant import AS_TABULATED, Variant, variant
from loadgen.reproduce.batch import MAX_NUM_SEQS
from loadgen.reproduce.command import progress

WHAT_IFS = ("hbm=0.8x", "hbm=1.25x", "kv=fp8", "weights=fp8", "fp8=ideal", "link=0.5x", "link=2x", "seqs=4096")
#: Beyond that an answer is a slip of the keyboard, and its curve takes for ever.
_LONGEST_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Words:
    """As given on the command line."""

    model: str
    gpus: int = 8
    outputs: Sequence[float] = (250, 1000, 2500, 6000)
    spread: float = 0.7
    at_once: Sequence[int] = (512, 8192)
    max_num_seqs: int = MAX_NUM_SEQS
    what_if: Sequence[str] = WHAT_IFS


@dataclass(frozen=True, slots=True)
class Answer:
    """What a curve, the crossing on it and the model asked for come to in one setting and variant."""

    task: Task
    points: tuple[Point, ...]
    crossing: Crossing
    here: Point


@dataclass(frozen=True, slots=True)
class Check:
    """A model of a table, and the same size between its neighbours without it."""

    task: Task
    table: Point
    between: Point


@dataclass(frozen=True, slots=True)
class Crossover:
    words: Words
    model: str
    billions: float
    variants: tuple[Variant, ...]
    answers: tuple[Answer, ...]
    checks: tuple[Check, ...]

    def of(self, variant: Variant) -> list[Answer]:
        return [answer for answer in self.answers if answer.task.variant == variant]


def find(words: Words, jobs: int = 1, quiet: bool = True) -> Crossover:
    """Raises LoadgenError."""
    sizes = Sizes(words.model)
    variants = (AS_TABULATED, *(variant(word) for text in words.what_if for word in text.split(",") if word))
    settings = _settings(words)
    tasks = [Task(sizes.model, setting, each) for each, setting in product(variants, settings)]
    answers: list[Answer] = []
    inner = [name for name in sizes.tables[1:-1] if name != sizes.model]
    held = [Task(sizes.model, setting, without=name) for name, setting in product(inner, settings)]
    checks: list[Check | None] = []
    with progress("model sizes", quiet) as watch:
        for answer in _each(tasks, jobs):
            answers.append(answer)
            watch(len(answers), len(tasks) + len(held))
        for task in held:
            checks.append(_check(task))
            watch(len(answers) + len(checks), len(tasks) + len(held))
    return Crossover(words, sizes.model, sizes.billions, variants, tuple(answers), tuple(c for c in checks if c))


def _settings(words: Words) -> list[Setting]:
    if min((*words.outputs, *words.at_once, words.gpus, words.max_num_seqs), default=0) < 1 or words.spread < 0:
        raise LoadgenError("crossover: outputs, answers at once, GPUs and --max-num-seqs are at least 1")
    if max(words.outputs) > _LONGEST_TOKENS:
        raise LoadgenError(f"crossover: mean outputs are at most {_LONGEST_TOKENS:,} tokens; no model answers longer")
    settings = [
        Setting(mean, words.spread, at_once, words.gpus, words.max_num_seqs)
        for at_once, mean in product(words.at_once, words.outputs)
    ]
    if len(settings[0].layouts) < 2:
        raise LoadgenError(f"crossover: {words.gpus} GPUs are one replica or do not share out evenly; use 2, 4 or 8")
    return settings


def _each(tasks: Sequence[Task], jobs: int) -> Iterator[Answer]:
    if jobs <= 1:
        yield from map(answer_to, tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(answer_to, tasks)


def answer_to(task: Task) -> Answer:
    """A whole curve of the tables; of anything else the crossing alone."""
    points = tuple(curve(task)) if task.variant == AS_TABULATED else ()
    return Answer(task, points, crossing(task, points), point(task, Sizes(task.model).billions))


def _check(task: Task) -> Check | None:
    """None where one GPU does not hold the model, so that there is nothing to compare."""
    billions = Sizes(task.without).billions
    table = point(Task(task.model, task.setting), billions)
    return Check(task, table, point(task, billions)) if len(table.rates) == len(task.setting.layouts) else None


def run_crossover(words: Words, jobs: int, out: Path | None, quiet: bool, console: Console) -> Crossover:
    """Raises LoadgenError."""
    from loadgen.plan.crossover.files import save
    from loadgen.plan.crossover.show import show

    if out is not None:
        need_writable(out)
    found = find(words, jobs, quiet)
    show(console, found)
    if out is not None:
        for path in save(out, found):
            console.print(f"wrote {path}", highlight=False)
    return found
