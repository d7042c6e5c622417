"""`loadgen workload`: what there is, what is in it."""

import csv
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import orjson
import typer
from rich.console import Console
from rich.table import Table

from loadgen.cli.record import record_workload
from loadgen.client.vocabulary import LocalTokenizer
from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.report.markup import number
from loadgen.report.svg import Axis, Line, chart, standalone
from loadgen.workload.describe import Description, describe
from loadgen.workload.family import shipped
from loadgen.workload.fit import fit as fit_family
from loadgen.workload.readers import reader
from loadgen.workload.recording import row_of
from loadgen.workload.sessions import SESSIONS
from loadgen.workload.spec import Catalogue
from loadgen.workload.trace import TraceWorkload

_HELP = """
List, describe, sample, record, plot and fit workloads.

Examples:

  loadgen workload list
  loadgen workload describe azure-conv
"""

app = typer.Typer(help=_HELP, no_args_is_help=True)
app.command("record")(record_workload)

Spec = Annotated[
    list[str], typer.Argument(help="NAME or FILE and KEY=VALUE words in one argument; several make a mix.")
]
Count = Annotated[int, typer.Option("--requests", "-n", min=3, help="How many to draw from an endless family.")]
Seed = Annotated[int, typer.Option("--seed", min=0)]
Tokenizer = Annotated[str, typer.Option("--tokenizer", help="For ShareGPT.", metavar="PATH")]


@app.command("list")
def list_workloads() -> None:
    """
    Names, lengths and sources.

    Example: loadgen workload list
    """
    table = Table(box=None)
    for name in ("name", "input p50", "p99", "output p50", "p99", "what"):
        table.add_column(name, justify="left" if name in ("name", "what") else "right")
    for family in shipped().values():
        tables = (family.input_tokens, family.output_tokens)
        table.add_row(family.name, *(f"{t.at(p):,.0f}" for t in tables for p in (50, 99)), family.title)
    for session in SESSIONS.values():
        table.add_row(session.name, "–", "–", f"{session.output.median:g}", "–", session.title)
    table.add_row("fixed", "–", "–", "–", "–", "isl=N osl=N: every request the same")
    console = Console()
    console.print(table)
    console.print(
        f"or a trace file ({', '.join(reader.Format)}); options: weight= class= tenant= tenants= patience= leave-after= "
        "max-input= max-output= max-total= on-long=drop|clip scale-input= scale-output= spread= shuffle=",
        highlight=False,
    )


@app.command("describe")
def describe_workload(
    spec: Spec,
    requests: Count = 10000,
    seed: Seed = 0,
    tokenizer: Tokenizer = "",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """
    Distributions of lengths, prefixes and arrivals.

    Examples:

      loadgen workload describe azure-conv
      loadgen workload describe "chat-sessions weight=3" agent-sessions
    """
    rows, notes = _draw(spec, requests, seed, tokenizer)
    found = describe(rows)
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(asdict(found) | {"notes": notes}, option=orjson.OPT_INDENT_2) + b"\n")
        return
    _show(found, notes)


@app.command("sample")
def sample_workload(
    spec: Spec,
    requests: Annotated[int, typer.Option("--requests", "-n", min=1)] = 20,
    seed: Seed = 0,
    tokenizer: Tokenizer = "",
) -> None:
    """
    Requests as CSV, in the plain format that loadgen also reads.

    Example: loadgen workload sample azure-conv -n 1000 > requests.csv
    """
    rows, _ = _draw(spec, requests, seed, tokenizer)
    made = [row_of(d) | {"hash_ids": " ".join(map(str, d.prefix))} for d in rows[:requests]]
    out = csv.DictWriter(sys.stdout, list(made[0]))
    out.writeheader()
    out.writerows(made)


@app.command("plot")
def plot_workload(
    spec: Spec,
    out: Annotated[Path, typer.Option("--out", "-o", help="SVG file.")],
    requests: Count = 10000,
    seed: Seed = 0,
    tokenizer: Tokenizer = "",
) -> None:
    """
    CDFs of prompt and output lengths as SVG.

    Example: loadgen workload plot azure-conv -o lengths.svg
    """
    rows, _ = _draw(spec, requests, seed, tokenizer)
    grid = np.linspace(0, 100, 201)
    lines = [
        Line(name, list(zip(np.percentile(values, grid).tolist(), (grid / 100).tolist(), strict=True)))
        for name, values in (
            ("input tokens", [d.prompt_tokens for d in rows]),
            ("output tokens", [d.output_tokens for d in rows]),
        )
    ]
    title = " + ".join(spec)
    drawing = chart(title, Axis("tokens", log=True), Axis("share", low=0, high=1, percent=True), lines)
    out.write_text(standalone(title, drawing, [line.label for line in lines]))


@app.command("fit")
def fit_workload(
    trace: Annotated[Path, typer.Argument(help="A trace file of any known format.")],
    name: Annotated[str, typer.Option("--name")],
    source: Annotated[str, typer.Option("--source", help="Where the trace comes from.")],
    licence: Annotated[str, typer.Option("--licence")],
    title: Annotated[str, typer.Option("--title")] = "",
) -> None:
    """
    Turn a trace into a family (percentiles and correlations, no rows), as JSON.

    Example:

      loadgen workload fit requests.csv --name mine --source "our chat, May" \\
        --licence internal > mine.json
    """
    rows, notes = reader.read(trace)
    data = fit_family(name, title or name, source, licence, rows, notes)
    sys.stdout.buffer.write(orjson.dumps(data) + b"\n")


def _draw(spec: list[str], requests: int, seed: int, tokenizer: str) -> tuple[list[Demand], list[str]]:
    count = LocalTokenizer(Path(tokenizer)).count_plain if tokenizer else None
    mix = Catalogue(count).mix(spec)
    finite = all(isinstance(p.workload, TraceWorkload) for p in mix.parts)
    chains = mix.draw(None if finite else requests, np.random.default_rng(seed))
    rows = [d for chain in chains for d in chain]
    if not rows:
        raise LoadgenError("workload: no request")
    return rows, list(mix.notes())


def _show(found: Description, notes: list[str]) -> None:
    table = Table(box=None)
    for name in ("", "mean", "p50", "p90", "p95", "p99", "max"):
        table.add_column(name, justify="right" if name else "left")
    for name, lengths in (("input tokens", found.input_tokens), ("output tokens", found.output_tokens)):
        table.add_row(name, *(f"{v:,.0f}" for v in asdict(lengths).values()))
    console = Console(highlight=False)
    console.print(f"{found.requests} requests" + (f" in {found.sessions} sessions" if found.sessions else ""))
    console.print(table)
    console.print("outputs by tokens: " + ", ".join(f"{k} {v:.1%}" for k, v in found.outputs_by_bucket.items()))
    console.print(f"rank correlation of input and output {number(found.rank_correlation)}")
    if found.shared_block_share is not None:
        console.print(f"prompt blocks seen before: {found.shared_block_share:.1%}")
    if found.rate is not None:
        console.print(
            f"arrivals {found.rate:.3g}/s, CV of gaps {number(found.gap_cv)}, most in a second {found.peak_per_second}"
        )
    for label, groups in (("class", found.by_class), ("tenant", found.by_tenant)):
        if len(groups) > 1:
            console.print(f"by {label}: " + ", ".join(f"{k or '–'} {v}" for k, v in list(groups.items())[:12]))
    for note in notes:
        console.print(f"· {note}", markup=False)
