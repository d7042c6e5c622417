"""tandem traffic"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem.cli import options
from tandem.cli.failure import CliError, Exit
from tandem.cli.traffic_accounts import ALONE, Endpoints, ask_each, each_once, together

if TYPE_CHECKING:
    from rich.table import Table

_EVENTS = 5


def traffic(
    within: Annotated[
        float | None, typer.Option(metavar="S", min=1, help="Only what arrived in the last S seconds.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="For tandem plan --observed, and for loadgen -w."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The document as it is, without rows.")] = False,
    endpoint: Endpoints = ALONE,
    api_key: options.ApiKey = "",
) -> None:
    """
    Show what gateways have been asked of late: rate, bursts, prompts and answers by class, and drifts of lengths.

    With --out each request goes to a file: when it came, its class, its lengths.
    No text and no tenant.

    With several gateways it is the traffic of them all.

    Examples:

      tandem traffic
      tandem traffic --endpoint http://gw-1:8000 --endpoint http://gw-2:8000
      tandem traffic --within 600 -o traffic.json
      tandem plan --observed traffic.json --model h200-sxm/qwen3-32b --gpus 8 \\
        --goodput "ttft:1000 tpot:50"
    """
    from tandem.printable import printable_document

    endpoints = each_once(endpoint)
    told = ask_each(endpoints, api_key, within, rows=out is not None or len(endpoints) > 1)
    document = together(told)
    if out is not None:
        try:
            out.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
        except OSError as error:
            raise CliError(Exit.USAGE, f"cannot write {out}: {error.strerror}") from None
    document = {key: value for key, value in document.items() if key not in ("columns", "rows")}
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    _show(printable_document(document))
    if out is not None:
        typer.echo(f"requests: {out}; tandem plan --observed {out} plans by them")


def _show(document: dict[str, Any]) -> None:
    from tandem.cli.console import literal

    console = literal()
    rate, variation = document["rate_ps"], document["gap_cv"]
    bursts = "" if variation is None else f", coefficient of variation of the gaps {variation:.3g}"
    console.print(
        f"{document['requests']} {'request' if document['requests'] == 1 else 'requests'} in {document['window_s']:.0f} s: "
        f"{'no rate' if rate is None else f'{rate:.3g}/s'}{bursts}"
    )
    if len(document["gateways"]) > 1:
        for part in document["gateways"]:
            alone = "no rate" if part["rate_ps"] is None else f"{part['rate_ps']:.3g}/s"
            console.print(f"  {part['id']}: {part['requests']} in {part['window_s']:.0f} s, {alone}")
    if document["classes"]:
        console.print(_classes(document["classes"]))
    cut, running = document["known"]["cut"], document["known"]["open"]
    if cut or running:
        console.print(
            f"{cut} answers were cut and {running} still run: here they count as was expected, or as they are"
        )
    drifts = document["drifts"]
    console.print(f"drifts of answers' lengths since the start: {drifts['count']}")
    for event in drifts["newest"][-_EVENTS:]:
        console.print(
            f"  {event['change']} {event['age_s']:.0f} s ago, {event['requests_since']} requests since: "
            f"{' · '.join(event['class'])}",
        )


def _classes(classes: dict[str, Any]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("class", "requests", "prompt mean", "p50", "p90", "p99", "cached", "answer mean", "p50", "p90", "p99"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for name, one in classes.items():
        prompt, output = one["prompt"], one["output"]
        cells = [f"{lengths[key]:,.0f}" for lengths in (prompt, output) for key in ("mean", "p50", "p90", "p99")]
        cells.insert(4, f"{one['cached_share']:.0%}")
        table.add_row(name, str(one["requests"]), *cells)
    return table
