"""The end of a command: files, the summary on the terminal, the exit code."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from loadgen.cli import build
from loadgen.cli.options import OutputOptions
from loadgen.cli.session import Session
from loadgen.experiment import Experiment
from loadgen.failure import LoadgenError
from loadgen.report import files
from loadgen.report.console import show
from loadgen.report.document import Scenario, document
from loadgen.report.page import page
from loadgen.report.terminal import terminal

INVALID = 3
INTERRUPTED = 130


def finish(
    kind: str,
    session: Session,
    experiment: Experiment,
    output: OutputOptions,
    config: Mapping[str, Any],
    started: datetime,
    *,
    searches: list[dict[str, Any]] | None = None,
    comparison: Mapping[str, Any] | None = None,
) -> None:
    """Writes whatever there is, also after Ctrl-C."""
    if not session.trials:
        if session.interrupted:
            raise typer.Exit(INTERRUPTED)
        raise LoadgenError("nothing was run")
    data = document(
        kind,
        experiment,
        session.trials,
        config=config,
        scenario=Scenario(build.facts(output.scenario)),
        started=started,
        searches=searches or (),
        comparison=comparison,
    )
    folder = build.folder(output.out, kind)
    files.save(folder, data, session.trials, gaps=output.gaps)
    write_page(folder / "report.html", data)
    console = terminal()
    show(console, data)
    console.print(f"{folder}/: summary.json, requests.jsonl, summary.csv, report.html", style="dim", soft_wrap=True)
    if session.interrupted:
        raise typer.Exit(INTERRUPTED)
    if any(run["invalid"] for run in data["runs"]):
        raise typer.Exit(INVALID)


def write_page(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(page(data), encoding="utf-8")
