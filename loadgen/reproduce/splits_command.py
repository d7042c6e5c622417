"""What `loadgen simulate --reproduce pool-splits` does."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadgen.plan.candidate import Candidate
from loadgen.plan.crew import Crew
from loadgen.plan.question import Effort
from loadgen.reproduce.contest import EFFORT, LOOK, Contest, Contested, Side, best_of, held
from loadgen.reproduce.gates import Gate
from loadgen.reproduce.show import show_gates
from loadgen.reproduce.splits import (
    EXAMPLE,
    MACHINES,
    SPLITWISE,
    example_contests,
    machine_splits,
    planner_contests,
    shape_contests,
)
from loadgen.reproduce.splits_files import save_splits

#: A ratio within this of 1 has no sign: brackets are 3 % wide, and seeds differ.
_EVEN = 0.05
INTERRUPTED = 130
Watch = Callable[[int, int], None]
Lone = tuple[str, Contest, tuple[Candidate, ...]]


def reproduce_splits(jobs: int, out: Path | None, watch: Watch, console: Console, *, quick: bool = False) -> int:
    """Returns 1 when a direction is wrong. Every contest is told of as it ends. `quick`: one seed, wider brackets."""
    effort = LOOK if quick else EFFORT
    with Crew(jobs) as crew:
        planner, shape = planner_contests(), shape_contests()
        lone: list[Lone] = [(name, *pair) for name, pair in example_contests().items()]
        for workload in SPLITWISE:
            lone += [(f"{workload} {n}", contest, layouts) for n, contest, layouts in machine_splits(workload)]
        total = len(planner) + len(shape) + len(lone)
        ended: dict[str, Contested] = {}
        for contest, found in crew.map(partial(held, effort=effort), iter([*planner, *shape])):
            ended[_key(contest)] = found
            watch(len(ended), total)
            _tell(console, len(ended), total, f"{contest.name}, {contest.goodput}: {_ratio(found.ratio)} of colocated")
        sides: dict[str, Side] = {}
        for (name, _, _), side in crew.map(partial(_alone, effort=effort), iter(lone)):
            sides[name] = side
            watch(len(ended) + len(sides), total)
            _tell(console, len(ended) + len(sides), total, f"{name}: {side.rate:.3g} requests/s per GPU")
    planned, shaped = ([ended[_key(c)] for c in chosen if _key(c) in ended] for chosen in (planner, shape))
    if crew.stopped:  # what there is, is worth minutes
        _show_contests(console, planned, shaped)
        console.print(f"[yellow]stopped: {crew.stopped}; {len(ended) + len(sides)} of {total}[/yellow]")
        return INTERRUPTED
    gates = [*_signs(planned), *_shape(shaped), _pools(sides)]
    _show(console, planned, shaped, sides)
    show_gates(console, gates)
    if out is not None:
        for path in save_splits(out, planned, shaped, sides, gates):
            console.print(f"wrote {path}", highlight=False)
    return 0 if all(gate.passed for gate in gates) else 1


def _tell(console: Console, done: int, total: int, what: str) -> None:
    console.print(f"[dim]{done} of {total}[/dim]  {what}", highlight=False, emoji=False)


def _key(contest: Contest) -> str:
    return contest.name + contest.goodput


def _alone(item: Lone, effort: Effort) -> Side:
    _, contest, layouts = item
    return best_of(contest, layouts, effort)


def _sign(ratio: float) -> int:
    return 0 if abs(ratio - 1) <= _EVEN else 1 if ratio > 1 else -1


def _signs(planned: Sequence[Contested]) -> list[Gate]:
    made = []
    for found in planned:
        published, ratio = found.contest.published or 1.0, found.ratio or 0.0
        same = _sign(published) * _sign(ratio) >= 0
        made.append(Gate(f"aiconfigurator, {found.contest.name}", same, f"published {published:.2f}, here {ratio:.2f}"))
    return made


def _shape(shaped: Sequence[Contested]) -> list[Gate]:
    ratios = {found.contest.name: found.ratio or 0.0 for found in shaped}
    long_tight, short_long = ratios["4096 in, 64 out, TPOT 15 ms"], ratios["128 in, 4000 out, TPOT 100 ms"]
    return [
        Gate("splits win for long prompts and tight TPOT", long_tight > 1, f"{long_tight:.2f} of colocated"),
        Gate("splits lose for short prompts and very long answers", short_long < 1, f"{short_long:.2f} of colocated"),
    ]


def _pools(sides: dict[str, Side]) -> Gate:
    code, conv = (_best_split(sides, workload) for workload in SPLITWISE)
    return Gate("code wants more prompt machines than conversation", code > conv, f"{code} and {conv} of {MACHINES}")


def _best_split(sides: dict[str, Side], workload: str) -> int:
    return max(range(1, MACHINES), key=lambda n: sides[f"{workload} {n}"].rate)


def _show_contests(console: Console, planned: Sequence[Contested], shaped: Sequence[Contested]) -> None:
    for title, found in (("Qwen3-32B, 8 H200s", planned), ("14B, 3 GPUs", shaped)):
        if found:
            console.print(_contests(f"{title}: split over colocated, requests/s per GPU", found))


def _show(console: Console, planned: Sequence[Contested], shaped: Sequence[Contested], sides: dict[str, Side]) -> None:
    _show_contests(console, planned, shaped)
    table = Table(
        "DistServe's example, requests/s", "published (13B, A100)", "here (14B, H200)", "over colocated", "", box=None
    )
    for name, published in EXAMPLE.items():
        gpus = {"split_of_three": 3}.get(name, 1)
        each = {"decode_only": 8}.get(name, gpus)  # of all GPUs, most of them spare prefill workers
        rate = sides[name].rate * each
        ratio = f"{published / gpus / EXAMPLE['colocated']:.2f} a GPU"
        ours = f"{rate / gpus / (sides['colocated'].rate or 1):.2f} a GPU"
        table.add_row(name.replace("_", " "), f"{published:g}", f"{rate:.3g}", ratio, ours)
    console.print(table)
    table = Table("prompt machines of 8", *map(str, range(1, MACHINES)), "published best", box=None)
    for workload, share in SPLITWISE.items():
        rates = [f"{sides[f'{workload} {n}'].rate * MACHINES:.3g}" for n in range(1, MACHINES)]
        table.add_row(f"{workload}, requests/s per GPU x 8", *rates, f"{share * MACHINES:g}")
    console.print(table)


def _contests(title: str, found: Sequence[Contested]) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for name in ("traffic", "limits", "colocated", "", "split", "", "published", "here", "by seed", "of bounds"):
        table.add_column(name, justify="right" if name in ("published", "here", "of bounds") else "left")
    for each in found:
        table.add_row(
            each.contest.name,
            each.contest.goodput,
            each.together.label,
            f"{each.together.rate:.3g}",
            each.apart.label,
            f"{each.apart.rate:.3g}",
            _ratio(each.contest.published),
            _ratio(each.ratio),
            " ".join(f"{r:.2f}" for r in each.ratios),
            _ratio(each.bound_ratio),
        )
    return table


def _ratio(value: float | None) -> str:
    return "·" if value is None else f"{value:.2f}"
