"""`python -m benchmarks.never_worse`: fluid roles against the best static layouts, in requests/s at 90 % attainment."""

import sys
import time
from typing import Annotated

import typer

from benchmarks.never_worse.contest import Cell, contest
from benchmarks.never_worse.mixes import AIMS, MIXES, MODELS, SEEDS
from benchmarks.never_worse.table import HEAD, row, summary


def main(
    models: Annotated[str, typer.Option(help=f"Of {', '.join(MODELS)}.")] = "qwen3-32b",
    mixes: Annotated[str, typer.Option(help=f"Of {', '.join(MIXES)}.")] = ",".join(MIXES),
    aims: Annotated[str, typer.Option(help=f"Of {', '.join(aim.name for aim in AIMS)}.")] = "tight,usual,loose",
    seeds: Annotated[int, typer.Option(min=1, max=len(SEEDS), help="Of the comparison.")] = len(SEEDS),
    judged: Annotated[int, typer.Option(min=50, help="Requests judged a run, at least.")] = 400,
    quiet: Annotated[bool, typer.Option(help="Rows alone.")] = False,
) -> None:
    """Prints a row as soon as a cell is done. All figures are a model's."""

    def said(text: str) -> None:
        if not quiet:
            print(f"  {text}", file=sys.stderr, flush=True)

    cells: list[Cell] = []
    print(HEAD, flush=True)
    for model in models.split(","):
        for mix in mixes.split(","):
            for aim in [one for one in AIMS if one.name in aims.split(",")]:
                begun_s = time.process_time()
                cells.append(contest(MODELS[model], mix, aim, SEEDS[:seeds], judged, said))
                print(row(cells[-1]), flush=True)
                said(f"{time.process_time() - begun_s:.0f} s of CPU")
    print(f"\n{summary(cells)}", flush=True)


if __name__ == "__main__":
    typer.run(main)
