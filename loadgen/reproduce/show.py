"""The tables on the terminal and the files."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from loadgen.reproduce.document import flat_rows
from loadgen.reproduce.gates import Gate

_HEAD = (
    "run", "GPUs", "published", "simulated", "tok/s/GPU", "TTFT mean", "TPOT mean", "preempted", "recomputed", "stranded",
    "prefill", "collective", "efficiency",
)  # fmt: skip


def show(console: Console, data: Mapping[str, Any]) -> None:
    for study in data["studies"]:
        console.print(_rows(study))
        if study["comparisons"] or study["best_limit"]:
            console.print(_comparisons(study))
    console.print(f"[dim]{data['source']}. {data['figures']}.[/dim]")
    show_gates(console, data["gates"])


def show_gates(console: Console, gates: Sequence[Gate | Mapping[str, Any]]) -> None:
    for gate in gates:
        name, passed, detail = (
            (gate.name, gate.passed, gate.detail)
            if isinstance(gate, Gate)
            else (gate["name"], gate["passed"], gate["detail"])
        )
        console.print(f"{'[green]pass[/green]' if passed else '[red]FAIL[/red]'}  {name}: {detail}", highlight=False)


def _rows(study: Mapping[str, Any]) -> Table:
    table = Table(title=study["title"], caption=study["note"] or None, title_justify="left", caption_justify="left")
    for name in _HEAD:
        table.add_column(name, justify="left" if name == "run" else "right")
    for row in study["rows"]:
        published = "·" if row["published_s"] is None else f"{row['published_s']:,.0f} s {row['grade']}"
        if not row["fits"]:
            table.add_row(row["label"], "", _plain(published), "does not fit")
            continue
        efficiency = row["scaling_efficiency"]
        table.add_row(
            row["label"],
            str(row["gpus"]),
            _plain(published),
            f"{row['makespan_s']:,.0f} s",
            f"{row['tokens_per_s_per_gpu']:,.0f}",
            f"{row['ttft_s']['mean']:,.1f} s",
            f"{row['tpot_s']['mean'] * 1e3:,.0f} ms",
            f"{row['preemptions']:,}",
            f"{row['recomputed_share']:.0%}",
            f"{row['stranded_share']:.1%}",
            f"{row['prefill_share']:.0%}",
            f"{row['collective_share']:.0%}",
            "·" if efficiency is None else f"{efficiency:.2f}",
        )
    return table


def _comparisons(study: Mapping[str, Any]) -> Table:
    table = Table("times slower", "published", "simulated", "", box=None, padding=(0, 2))
    for row in study["comparisons"]:
        agrees = {None: "", True: "same direction", False: "[red]other direction[/red]"}[row["same_direction"]]
        table.add_row(row["label"], _figure(row), f"{row['simulated']:.2f}x" if row["simulated"] else "·", agrees)
    if best := study["best_limit"]:
        published = _plain(f"near {best['published']:,.0f} {best['grade']}")
        table.add_row("fastest limit", published, f"{best['simulated']:,}", "")
    return table


def _figure(row: Mapping[str, Any]) -> str:
    return "·" if row["published"] is None else _plain(f"{row['published']:.2f}x {row['grade']}")


def _plain(text: str) -> str:
    """Brackets are a grade, not markup."""
    return text.replace("[", "\\[")


def save(folder: Path, data: Mapping[str, Any]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    whole, table = folder / "reproduction.json", folder / "reproduction.csv"
    whole.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2))
    write_rows(table, flat_rows(data))
    return [whole, table]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """CSV with the keys of the first row as its head."""
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
