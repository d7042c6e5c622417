"""The crossover on the terminal."""

import math
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from loadgen.plan.crossover.curve import Crossing, Point
from loadgen.plan.crossover.session import Answer, Crossover
from loadgen.plan.crossover.variant import AS_TABULATED


def show(console: Console, found: Crossover) -> None:
    base = found.of(AS_TABULATED)
    for at_once in found.words.at_once:
        console.print()
        console.print(_curve(found, [a for a in base if a.task.setting.at_once == at_once], at_once))
    for table in (_crossings(found), _here(found)):
        console.print()
        console.print(table)
    console.print()
    worst = max((abs(c.between.gain / c.table.gain - 1) for c in found.checks), default=None)
    if worst is not None:
        console.print(
            f"Sizes that name no table are interpolated. Left out and interpolated from its neighbours, a table's gain of TP "
            f"comes out at most {worst:.1%} off ({len(found.checks)} cases).",
            highlight=False,
        )
    for each in found.variants:
        if each.remark:
            console.print(f"· {each.words}: {each.remark}", highlight=False)
    console.print(
        "Figures of a model: the fluid limit of an endless stream, with the short prompts of natural-reasoning. No last answer "
        "is waited for, and no replica is short of KV while another has some: kind to replicas.",
        highlight=False,
    )


def size_of(crossing: Crossing) -> str:
    words = {"below": f"below {crossing.billions:.3g}B", "above": f"above {crossing.billions:.3g}B"}
    if crossing.bound == "room":
        return f"{crossing.billions:.3g}B (room)"
    return words.get(crossing.bound, f"{crossing.billions:.3g}B")


def verdict(point: Point) -> str:
    """Who wins, and by how much over the best of the other side."""
    if math.isinf(point.gain):
        return f"{point.best} alone"
    lead = point.gain if point.gain >= 1 else 1 / point.gain
    return f"{point.best} {lead:.2f}x"


def _curve(found: Crossover, answers: Sequence[Answer], at_once: int) -> Table:
    title = (
        f"{found.words.gpus} GPUs, at most {at_once:,} answers at once: the faster side, replicas or TP, and its lead"
    )
    table = _table(title)
    table.add_column("model")
    table.add_column("table", overflow="fold")
    for answer in answers:
        table.add_column(f"mean {answer.task.setting.mean:,.0f}", no_wrap=True)
    longest = max((answer.points for answer in answers), key=len, default=())
    for row, one in enumerate(longest):
        cells = [verdict(answer.points[row]) if row < len(answer.points) else "" for answer in answers]
        table.add_row(f"{one.billions:.3g}B", one.table, *cells)
    return table


def _table(title: str) -> Table:
    """No frames: on 80 columns they take the room of a model's name."""
    return Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left")


def _crossings(found: Crossover) -> Table:
    title = "TP wins from this size on (room: replicas win as long as one GPU holds the model)"
    return _by_variant(found, title, lambda answer: size_of(answer.crossing))


def _here(found: Crossover) -> Table:
    return _by_variant(found, f"{found.model}, {found.billions:.3g}B", lambda answer: verdict(answer.here))


def _by_variant(found: Crossover, title: str, words: Callable[[Answer], str]) -> Table:
    means = [f"mean {mean:,.0f}" for mean in found.words.outputs]
    table = _table(title)
    for name in ("what if", "at once", *means):
        table.add_column(name, no_wrap=True)
    for variant in found.variants:
        for at_once in found.words.at_once:
            row = [words(a) for a in found.of(variant) if a.task.setting.at_once == at_once]
            table.add_row(variant.words, f"{at_once:,}", *row)
    return table
