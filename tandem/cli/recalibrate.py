"""tandem recalibrate"""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli import options
from tandem.cli.failure import CliError, Exit

_TRAFFIC, _OUTPUT = options.TRAFFIC, "Output"


def recalibrate(
    layouts: Annotated[
        list[str],
        typer.Option("--layout", "-l", metavar="WORDS", help="As for tandem up, such as '--colocated 2'. Repeatable."),
    ],
    table: Annotated[
        str, typer.Option(metavar="PROFILE", help="The table to check: DEVICE/MODEL, or file:TABLE.json.")
    ],
    target: Annotated[
        str,
        typer.Option(metavar="TARGET", help="up:WORDS starts each layout, sim:WORDS stands in for it, or a URL."),
    ],
    goodput: Annotated[
        list[str], typer.Option(metavar="LIMITS", help="In ms: 'ttft:1000 tpot:50'.", rich_help_panel=_TRAFFIC)
    ],
    workload: options.Workload = None,
    rate: Annotated[float, typer.Option(metavar="R", help="Requests a second.", rich_help_panel=_TRAFFIC)] = 1.0,
    duration: Annotated[float, typer.Option("--duration", "-d", metavar="S", rich_help_panel=_TRAFFIC)] = 60.0,
    timeout: options.ClientTimeout = 600.0,
    seed: options.Seed = 0,
    tables: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="For versions of built-in tables. Those of a file go beside it.",
            rich_help_panel=_OUTPUT,
        ),
    ] = Path("tables"),
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="For the record.", rich_help_panel=_OUTPUT)
    ] = Path("recalibration"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Compare, and write no table.", rich_help_panel=_OUTPUT)
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The record on stdout.", rich_help_panel=_OUTPUT)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", rich_help_panel=_OUTPUT)] = False,
) -> None:
    """
    Hold a cost table against layouts that run, and correct it.

    Sends one fixed trace to every layout, and simulates the same on the table.
    Prints every latency side by side, what was predicted to limit each layout
    and what did, and writes the corrected table as a new version. What there
    is stays. Ctrl-C keeps the record of what was observed and writes no table.

    Examples:

      tandem recalibrate -l "--prefill 1 --decode 1" -l "--colocated 2" \\
        --table file:cpu.json --target "up:--model SmolLM2-135M-Instruct" \\
        -w "azure-conv max-total=400" --rate 1 -d 120 \\
        --goodput "ttft:500 tpot:60"
      tandem recalibrate -l "--colocated 4 --colocated-tp 2" \\
        --table h200-sxm/qwen3-32b --target http://host:8000 \\
        -w azure-code --rate 8 --goodput "ttft:1000 tpot:50"
    """
    from loadgen.failure import LoadgenError
    from loadgen.recalibrate.session import Words, check, run_recalibration

    words = Words(
        layouts=layouts, table=table, target=target, workload=workload or (), goodput=goodput, rate=rate,
        duration_s=duration, seed=seed, timeout_s=timeout, tables=tables, out=out,
    )  # fmt: skip
    try:
        experiment = check(words)
    except LoadgenError as error:
        raise CliError(Exit.USAGE, str(error)) from None
    try:
        outcome = run_recalibration(words, experiment, dry_run=dry_run, as_json=as_json, quiet=quiet or as_json)
    except LoadgenError as error:
        raise CliError(Exit.FAILED, str(error)) from None
    if outcome.failed:
        raise CliError(Exit.FAILED, outcome.failed)
    if outcome.interrupted:
        raise typer.Exit(Exit.INTERRUPTED)
