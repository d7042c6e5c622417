"""The map as files: JSON, CSV, one picture a model, and the crossover curve."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from loadgen.report.svg import Axis, Line, chart, standalone
from loadgen.reproduce.crossover import Crossing
from loadgen.reproduce.heat import batch_name, heat_map
from loadgen.reproduce.map import Cell, Subject
from loadgen.reproduce.show import write_rows

SCHEMA = "loadgen-layout-map/1"


def save_map(
    folder: Path, cells: Sequence[Cell], crossings: Sequence[Crossing], subjects: Sequence[Subject], seed: int
) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        "schema": SCHEMA,
        "figures": "model figures, nothing here was measured",
        "seed": seed,
        "cells": [cell.as_dict() for cell in cells],
        "crossover": [asdict(crossing) for crossing in crossings],
    }
    paths = [folder / name for name in ("map.json", "map.csv", "crossover.csv", "crossover.svg")]
    paths[0].write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2))
    layouts = list(dict.fromkeys(text for subject in subjects for text in subject.layouts))
    rows = []
    for cell in cells:
        row = cell.as_dict()
        seconds = row.pop("seconds")
        rows.append(row | {f"{text}_s": seconds.get(text) for text in layouts})
    write_rows(paths[1], rows)
    write_rows(paths[2], [asdict(crossing) for crossing in crossings])
    paths[3].write_text(crossover_picture(crossings))
    for subject in subjects:
        own = [cell for cell in cells if cell.subject == subject.name]
        path = folder / f"map-{subject.name.lower()}.svg"
        path.write_text(
            heat_map(f"{subject.name}: layout that finishes a batch first, 8 × H200 (model)", own, subject.layouts)
        )
        paths.append(path)
    return paths


def crossover_picture(crossings: Sequence[Crossing]) -> str:
    """Standalone SVG: model size over mean output. A line at an end of the range says that it lies outside."""
    groups = sorted({(c.spread, c.batch) for c in crossings})
    lines = []
    for number, (spread, batch) in enumerate(groups):
        own = sorted((c for c in crossings if (c.spread, c.batch) == (spread, batch)), key=lambda c: c.mean)
        label = f"variation {spread:g}, batch {batch_name(batch)}{' (outside the range)' if all(c.bound for c in own) else ''}"
        points = [(c.mean, c.billions) for c in own]
        lines.append(Line(label, points, dots=True, dashed=all(c.bound for c in own), colour=number))
    title = "Model size from which tensor parallelism beats pure replicas (model)"
    x, y = Axis("mean output, tokens", log=True), Axis("billions of parameters", log=True, low=5, high=50)
    return standalone(title, chart(title, x, y, lines), [line.label for line in lines])


def show_map(console: Console, cells: Sequence[Cell], crossings: Sequence[Crossing]) -> None:
    """Who wins where, one table a model, then the crossover."""
    for subject in dict.fromkeys(cell.subject for cell in cells):
        console.print(_table(subject, [cell for cell in cells if cell.subject == subject]))
    table = Table(
        "variation", "batch", "mean output", "TP wins from", title="Crossover in model size", title_justify="left"
    )
    for crossing in crossings:
        words = {"below": "smaller than the smallest tabulated", "above": "larger than any that fits one GPU"}
        size = words.get(crossing.bound, f"{crossing.billions:.0f}B")
        table.add_row(f"{crossing.spread:g}", batch_name(crossing.batch), f"{crossing.mean:,.0f}", size)
    console.print(table)
    console.print(
        "Between these sizes, and with other memory, links or precision: tandem plan crossover", highlight=False
    )


def _table(subject: str, cells: Sequence[Cell]) -> Table:
    title = f"{subject}: who finishes first, and by how much (* as published, + its order only)"
    means = sorted({cell.mean for cell in cells})
    table = Table("variation", "batch", *(f"mean {mean:,.0f}" for mean in means), title=title, title_justify="left")
    by_row: dict[tuple[float, int], dict[float, Cell]] = {}
    for cell in cells:
        by_row.setdefault((cell.spread, cell.batch), {})[cell.mean] = cell
    for (spread, batch), row in by_row.items():
        table.add_row(f"{spread:g}", batch_name(batch), *(_words(row[mean]) for mean in means))
    return table


def _words(cell: Cell) -> str:
    mark = "*" if cell.like_published else "+" if cell.order_as_published else ""
    return f"{cell.winner} {cell.lead:.2f}x{mark}"
