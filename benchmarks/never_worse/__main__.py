"""`python -m benchmarks.never_worse`: fluid roles against the best static layouts, in requests/s at 90 % attainment."""

import sys
import time
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.never_worse.contest import Cell, Contest
from benchmarks.never_worse.mixes import AIMS, MIXES, MODELS, SEEDS
from benchmarks.never_worse.store import Store, policy_version
from benchmarks.never_worse.table import HEAD, row, summary


def main(
    models: Annotated[str, typer.Option(help=f"Of {', '.join(MODELS)}.")] = "qwen3-32b",
    mixes: Annotated[str, typer.Option(help=f"Of {', '.join(MIXES)}.")] = ",".join(MIXES),
    aims: Annotated[str, typer.Option(help=f"Of {', '.join(aim.name for aim in AIMS)}.")] = "usual,tight,loose",
    seeds: Annotated[int, typer.Option(min=1, max=len(SEEDS), help="Of the comparison.")] = len(SEEDS),
    judged: Annotated[int, typer.Option(min=50, help="Requests judged a run, at least.")] = 400,
    store: Annotated[
        Path | None, typer.Option(help="Keeps what runs have shown; a table goes on where it was.")
    ] = None,
    quiet: Annotated[bool, typer.Option(help="Rows alone.")] = False,
) -> None:
    """Prints a row as soon as a cell is done. All figures are a model's."""

    def said(text: str) -> None:
        if not quiet:
            print(f"  {text}", file=sys.stderr, flush=True)

    kept, version = Store(store), policy_version(Path(__file__).parents[2])
    cells: list[Cell] = []
    print(HEAD, flush=True)
    for model, name, mix in product(models.split(","), aims.split(","), mixes.split(",")):
        begun_s, known = time.process_time(), len(kept)
        aim = next(one for one in AIMS if one.name == name)
        cells.append(Contest(MODELS[model], mix, aim, judged, kept, version, said).cell(SEEDS[:seeds]))
        print(row(cells[-1]), flush=True)
        said(f"{len(kept) - known} runs, {time.process_time() - begun_s:.0f} s of CPU")
    print(f"\n{summary(cells)}", flush=True)


if __name__ == "__main__":
    typer.run(main)
