"""`loadgen report`: pages, charts and regressions out of a summary."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from loadgen.cli.finish import write_page
from loadgen.failure import LoadgenError
from loadgen.report import files
from loadgen.report.baseline import changes
from loadgen.report.console import show
from loadgen.report.curves import figures
from loadgen.report.png import png as as_png
from loadgen.report.svg import standalone
from loadgen.report.terminal import terminal
from loadgen.report.validation import missing, not_told

REGRESSION = 1


def register(app: typer.Typer) -> None:
    app.command("report")(command)


def command(
    summary: Annotated[Path, typer.Argument(help="summary.json or the folder it is in.")],
    html: Annotated[Path | None, typer.Option("--html", help="Write the page here.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write one line per run here.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write every chart into this folder.")] = None,
    png: Annotated[
        Path | None, typer.Option("--png", help="The same as pictures; needs the extra `report`.", metavar="DIRECTORY")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Earlier summary to compare with; exit code 1 on a regression.")
    ] = None,
    tolerance: Annotated[float, typer.Option("--tolerance", help="How much worse a figure may be.")] = 0.1,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a report that leaves a fact of its scenario unstated.")
    ] = False,
) -> None:
    """Render a summary again, export its charts, or flag regressions against a baseline.

    Examples:

      loadgen report loadgen-results/DATE-run --html page.html --svg charts
      loadgen report loadgen-results/DATE-run --baseline loadgen-results/BEFORE
    """
    data = files.load(summary)
    console = terminal()
    if absent := missing(data):
        raise LoadgenError(f"{summary}: a report needs its {', '.join(absent)}")
    unstated = not_told(data)
    if strict and unstated:
        raise LoadgenError(f"{summary}: not stated: {', '.join(unstated)} (add --scenario KEY=VALUE to the run)")
    if html is not None:
        write_page(html, data)
    if csv is not None:
        files.write_csv(csv, data)
    if svg is not None:
        _write_charts(data, svg, "svg", lambda *figure: standalone(*figure).encode())
    if png is not None:
        _write_charts(data, png, "png", as_png)
    if baseline is None:
        show(console, data)
        return
    found = changes(files.load(baseline), data, tolerance)
    for change in found:
        console.print(Text.assemble(("worse" if change.worse else "     ", "red"), f" {change}"))
    worse = sum(c.worse for c in found)
    console.print(f"{worse} of {len(found)} figures worse by more than {tolerance:.0%}")
    if worse:
        raise typer.Exit(REGRESSION)


def _write_charts(
    data: Mapping[str, Any], folder: Path, ending: str, made: Callable[[str, str, list[str]], bytes]
) -> None:
    drawn = [(figure[0], made(*figure)) for figure in figures(data)]
    folder.mkdir(parents=True, exist_ok=True)
    for title, content in drawn:
        name = title.lower().replace(" ", "-").replace(",", "").replace(":", "")
        (folder / f"{name}.{ending}").write_bytes(content)
