"""`python -m benchmarks.validity`: the fleet simulator against the real engine, and against its own engine in real time.

Three layouts at three rates each: half the knee, at it, and a quarter above. Limits and rates come from virtual time
alone, with tables that are measured first on this machine's real engine (alone, and beside another, and what serving
adds to a pair, by other requests), so that no truth is used to choose them. The same requests then go to the real
engine behind a real gateway (`real`), to the simulated engine in real time behind a real gateway (`live`), and through
virtual time. `exact` runs the tests that hold virtual time against single steps.
Ends with status 1 when attainment is off by more than 5 points (real) or 2 (live), or when a step differs.
"""

import asyncio
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
import uvloop

from benchmarks.ending import sigterm_as_ctrl_c
from benchmarks.fidelity import OPTIONS, WORKLOAD, measure, say
from benchmarks.validity import exact
from benchmarks.validity.cell import Cell
from benchmarks.validity.contest import ALONE, LAYOUTS, Question, cells
from benchmarks.validity.served import Served, measure_served
from benchmarks.validity.table import HEAD, exactness, explained, noise, row
from benchmarks.validity.virtual import Virtual
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.experiment import Experiment
from loadgen.workload.spec import Catalogue


class Part(StrEnum):
    REAL = "real"
    LIVE = "live"
    EXACT = "exact"


#: An engine alone would take all cores, and be another than the one in the table.
ONE_THREAD = "--set engine.omp_threads=1"

#: Points of attainment.
BARS = {Part.REAL: 5.0, Part.LIVE: 2.0}


def main(
    parts: Annotated[str, typer.Option(help=f"Of {', '.join(Part)}.")] = ",".join(Part),
    layouts: Annotated[str, typer.Option(help=f"Of {', '.join(LAYOUTS)}.")] = ",".join(LAYOUTS),
    tables: Annotated[Path | None, typer.Option(help="Folder of the tables; what is not there is measured.")] = None,
    profile: Annotated[str, typer.Option(help="For live, instead of the table: a built-in profile.")] = "",
    workload: Annotated[str, typer.Option(help="As of loadgen.")] = WORKLOAD,
    requests: Annotated[int, typer.Option(min=2, help="In every run.")] = 120,
    scale: Annotated[float, typer.Option(help="Limits over the p90 of requests alone.")] = 2.0,
    seed: Annotated[int, typer.Option(help="Of times and lengths.")] = 1,
    options: Annotated[str, typer.Option(help="Of tandem up, for the real engine.")] = f"{OPTIONS} {ONE_THREAD}",
    engine: Annotated[str, typer.Option(help="The real engine, as options of tandem up.")] = "--engine vllm",
) -> None:
    """Prints a row as soon as it is measured."""
    asked = [Part(part) for part in parts.split(",")]
    names = layouts.split(",")
    paced = Experiment(Catalogue().mix([workload]), Arrivals(Kind.POISSON, rate=1.0), seed=seed, count=requests)
    holds = True
    with TemporaryDirectory(prefix="validity-") as folder:
        kept = tables or Path(folder)
        if Part.REAL in asked:
            lonely = _table(kept, pair=False, options=options, engine=engine)
            virtual = {ALONE: Virtual(f"file:{lonely}")}
            if pairs := [name for name in names if name != ALONE]:
                pair = _table(kept, pair=True, options=options, engine=engine)
                others = replace(paced, seed=seed + 1)
                virtual |= {name: _served(name, pair, f"{options} {engine}", others) for name in pairs}
            question = Question.of(virtual, paced, scale, names)
            holds &= uvloop.run(_against(Part.REAL, question, names, f"{options} {engine}"))
        if Part.LIVE in asked:
            stated = profile or f"file:{_table(kept, pair=False, options=options, engine=engine)}"
            question = Question.of(dict.fromkeys(LAYOUTS, Virtual(stated)), paced, scale, names)
            holds &= uvloop.run(_against(Part.LIVE, question, names, f"--engine simulated --profile {stated}"))
    if Part.EXACT in asked:
        say("virtual time against single steps")
        found = exact.run()
        print(exactness(found))
        holds &= found.holds
    raise typer.Exit(0 if holds else 1)


def _table(folder: Path, *, pair: bool, options: str, engine: str) -> Path:
    """Of an engine beside another, or alone: what a neighbour leaves in the caches makes prompts slower."""
    table = (folder / ("pair.json" if pair else "alone.json")).resolve()
    if not table.exists():
        table.parent.mkdir(parents=True, exist_ok=True)
        uvloop.run(measure(options, engine, table, pair=pair))
    return table


def _served(name: str, pair: Path, options: str, experiment: Experiment) -> Virtual:
    """The engines of a layout beside a gateway and a client, by other requests than those that are judged."""
    kept = pair.with_name(f"served {name}.json".replace(" ", "-"))
    if not kept.exists():
        uvloop.run(measure_served(LAYOUTS[name], options, experiment, pair)).write(kept)
    return Served.read(kept).virtual(pair, kept.with_suffix(".table.json"))


async def _against(part: Part, question: Question, names: list[str], engine: str) -> bool:
    """Whether every cell is within its limit. Real engines need the machine, one layout after another."""
    found: list[Cell] = []

    async def one_layout(name: str) -> None:
        async for cell in cells(question, name, engine):
            print(row(part, cell, BARS[part]), flush=True)
            found.append(cell)

    print(f"{part}: good is {question.policy.describe()[0]}, in ms\n\n{HEAD}", flush=True)
    if part is Part.REAL:
        for name in names:
            await one_layout(name)
    else:
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(one_layout(name))
    outside = [text for cell in found if (text := explained(part, cell, BARS[part]))]
    print("\n" + "\n".join([noise(part, found), *outside]) + "\n", flush=True)
    return not outside


if __name__ == "__main__":
    sigterm_as_ctrl_c()
    typer.run(main)
