"""`python -m benchmarks.never_worse`: fluid roles against the best static layouts, in requests/s at 90 % attainment."""

import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from benchmarks.never_worse.ablation import asked
from benchmarks.never_worse.contest import Cell, Contest
from benchmarks.never_worse.mixes import AIMS, MIXES, MODELS, SEEDS, Case
from benchmarks.never_worse.screens import Screens
from benchmarks.never_worse.store import Store, policy_version
from benchmarks.never_worse.table import ARMS_HEAD, HEAD, arm_row, row, summary
from loadgen.plan.lines import Lines

Parsed = TypeVar("Parsed")


def main(
    model: Annotated[str, typer.Option(help=f"Of {', '.join(MODELS)}.")] = ",".join(MODELS),
    mix: Annotated[str, typer.Option(help=f"Of {', '.join(MIXES)}.")] = ",".join(MIXES),
    slo: Annotated[str, typer.Option(help=f"Of {', '.join(aim.limits for aim in AIMS)}.")] = "1000/50,500/30,4000/100",
    cell: Annotated[
        list[str] | None, typer.Option(help="One of them, as 'qwen3-32b code 500/30', in place of all; repeatable.")
    ] = None,
    layout: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this, and no search for layouts: '4C TP2/512', '6P TP1/2048 + 1D TP2', '4F TP2', or a static one "
            "with parts of the policy, '4C TP2/512 +order+routing+steps'; repeatable, ratios are to the first."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=len(SEEDS), help="Of the comparison.")] = 3,
    judged: Annotated[int, typer.Option(min=50, help="Requests judged a run, at least.")] = 250,
    times: Annotated[float, typer.Option(min=1, help="How many times as long a run is.")] = 1.0,
    store: Annotated[
        Path | None, typer.Option(help="Keeps what runs have shown; a table goes on where it was.")
    ] = None,
    screens: Annotated[
        Path | None,
        typer.Option(help="Layouts that a search found, which need not be searched again; others are added to it."),
    ] = None,
    quiet: Annotated[bool, typer.Option(help="Rows alone.")] = False,
) -> None:
    """Prints a row as soon as a cell is done. All figures are a model's."""

    def said(text: str) -> None:
        if not quiet:
            print(f"  {text}", file=sys.stderr, flush=True)

    options = product(model.split(","), slo.split(","), mix.split(","))
    texts = cell or [f"{name} {traffic} {limits}" for name, limits, traffic in options]
    cases = [_parsed("--cell", Case.of, text) for text in texts]
    asked_for = [
        [_parsed("--layout", partial(asked, case.model, case.aim), text) for text in layout or ()] for case in cases
    ]
    lines, version, kept = Lines(said), policy_version(Path(__file__).parents[2]), Store(store)
    known = Screens(screens)
    found: list[Cell] = []
    print(ARMS_HEAD if layout else HEAD, flush=True)
    with lines.again_and_again():
        for done, (case, arms) in enumerate(zip(cases, asked_for, strict=True)):
            begun_s, before = time.process_time(), len(kept)
            said(f"{case}: {done + 1} of {len(cases)}")
            running = partial(lines, done=done, total=len(cases))
            contest = Contest(case.model, case.mix, case.aim, judged, kept, known, version, said, running, times)
            if arms:
                rates = contest.rates(arms, SEEDS[:seeds])
                for arm, rate in zip(arms, rates, strict=True):
                    print(arm_row(case, arm, rate, rates[0], seeds, times), flush=True)
            else:
                found.append(contest.cell(SEEDS[:seeds]))
                print(row(found[-1]), flush=True)
            said(f"{len(kept) - before} runs, {time.process_time() - begun_s:.0f} s of CPU")
    if found:
        print(f"\n{summary(found)}", flush=True)


def _parsed(option: str, parse: Callable[[str], Parsed], text: str) -> Parsed:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


if __name__ == "__main__":
    typer.run(main)
