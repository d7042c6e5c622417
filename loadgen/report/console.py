"""What the terminal shows at the end."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from loadgen.report.markup import number
from loadgen.report.mix import headline, remarks, standings
from loadgen.report.validation import NOT_TOLD

#: What workers that stand on no GPU say that they stand on. An imitated GPU has its own name in virtual time.
_NO_GPU = frozenset({"cpu", "simulated"})


def show(console: Console, data: Mapping[str, Any]) -> None:
    """One block per run, then searches and the comparison."""
    for run in data["runs"] if data["kind"] == "run" else []:
        console.print(_run(run, data["slo"], data["scenario"]))
    if len(data["runs"]) > 1:
        console.print(_overview(data["runs"]))
    for search in data["searches"]:
        console.print(_search(search, data["scenario"]))
    if data["comparison"] is not None:
        console.print(_comparison(data))


def _run(run: Mapping[str, Any], slo: Mapping[str, Any], scenario: Mapping[str, str]) -> Group:
    overall, load, goodput = run["overall"], run["load"], run["goodput"]
    counts = overall["counts"]
    lines = Table.grid(padding=(0, 2))
    lines.add_row("target", f"{run['arm']}  {run['origin']}  ({_devices(run['gpus'], scenario)})")
    lines.add_row("arrivals", f"{run['arrivals']}, {run['schedule']['requests']} requests planned")
    lines.add_row("SLO", f"{'; '.join(slo['limits']) or 'none given: every completed request is good'}")
    lines.add_row(
        "offered",
        f"{overall['offered']} = {counts['good']} good + {counts['slo_missed']} SLO missed + {counts['rejected']} rejected"
        f" + {counts['failed']} failed + {counts['timed_out']} timed out"
        + (f" (abandoned {overall['abandoned']})" if overall["abandoned"] else "")
        + (f"; cancelled by plan {run['cancelled']}" if run["cancelled"] else ""),
    )
    lines.add_row("attainment", _share(overall["attainment"], overall["attainment_95"]))
    lines.add_row(
        "load",
        f"offered {number(load['offered_rps'])} req/s, achieved {number(load['achieved_rps'])}, completed "
        f"{number(load['completed_rps'])}; send lag p99 {number(load['send_lag_ms']['p99'], 1)} ms; "
        f"peak {load['peak_concurrency']} open",
    )
    lines.add_row(
        "goodput",
        f"{number(goodput['requests_ps'])} req/s, {number(goodput['output_tokens_ps'], 0)} tokens/s; per GPU "
        f"{number(goodput['requests_ps_per_gpu'])} req/s, {number(goodput['output_tokens_ps_per_gpu'], 0)} tokens/s",
    )
    if run["relative"] is not None:
        lines.add_row("run-level SLO", conditions(run["relative"]))
    if run["tpot_not_applicable"]:
        lines.add_row("one token", f"{run['tpot_not_applicable']} outputs of one token: their TPOT limit was skipped")
    if overall["reasons"]:
        lines.add_row("reasons", ", ".join(f"{k} {v}" for k, v in overall["reasons"].items()))
    for name, line in zip(("work", "cost", "rejected"), headline(standings([run])[0]), strict=True):
        lines.add_row(name, line)
    for note in run["notes"]:
        lines.add_row("note", note)
    return Group(lines, _latencies(overall), *_by(run), *_remarks(run))


def _devices(number_of: float, scenario: Mapping[str, str]) -> str:
    """What figures per GPU are per, on a node that has none too."""
    nodes = set(re.split(" / |, ", scenario.get("node", NOT_TOLD)))
    return f"{number_of:g} ranks, no GPU" if nodes <= _NO_GPU else f"{number_of:g} GPU"


def conditions(relative: Sequence[Mapping[str, Any]]) -> str:
    """All conditions of a run-level form and whether each held."""
    held = "held" if all(c["held"] for c in relative) else "NOT held"
    parts = [
        f"P{c['percentile']:g} {c['metric']} {'∞' if c['value'] is None else number(c['value'])}x {'≤' if c['held'] else '>'} {c['factor']:g}x"
        for c in relative
    ]
    return f"{held}: {', '.join(parts)}"


def _share(value: float | None, interval: Mapping[str, float] | None) -> str:
    if value is None or interval is None:
        return "–"
    return f"{value:.1%} of offered (95 %: {interval['low']:.1%} to {interval['high']:.1%})"


def _latencies(group: Mapping[str, Any], title: str = "latency, ms") -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("", "mean", "p50", "p90", "p95", "p99", "max", "n"):
        table.add_column(name, justify="right" if name else "left")
    for metric, d in group["latency_ms"].items():
        table.add_row(metric, *(number(d[k], 1) for k in ("mean", "p50", "p90", "p95", "p99", "max")), str(d["count"]))
    return table


def _by(run: Mapping[str, Any]) -> list[Table]:
    tables = []
    for title, key in (("by class", "by_class"), ("by tenant", "by_tenant"), ("by output length", "by_bucket")):
        if len(run[key]) > 1:
            tables.append(_groups(title, run[key]))
    return tables


def _groups(title: str, groups: Mapping[str, Any]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in (
        "",
        "offered",
        "com-\npleted",
        "re-\njected",
        "timed\nout",
        "left",
        "good",
        "TTFT\np50",
        "p99",
        "TPOT\np50",
        "p99",
        "E2E\np99",
    ):
        table.add_column(name, justify="right" if name else "left")
    for key, g in groups.items():
        l, c = g["latency_ms"], g["counts"]  # noqa: E741
        table.add_row(
            key or "–",
            str(g["offered"]),
            str(g["completed"]),
            str(c["rejected"]),
            str(c["timed_out"]),
            str(g["abandoned"]),
            f"{g['attainment']:.1%}",
            *(
                number(l[m][p], 1)
                for m, p in (("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"), ("tpot", "p99"), ("e2el", "p99"))
            ),
        )
    return table


def _remarks(run: Mapping[str, Any]) -> list[Text]:
    return [
        *(Text(f"INVALID: {reason}", style="bold red") for reason in run["invalid"]),
        *(Text(f"warning: {text}", style="yellow") for text in run["warnings"]),
    ]


def _overview(runs: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="runs", title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in (
        "arm",
        "rate",
        "rep",
        "offered\n/s",
        "good\n/s",
        "good/s\n/GPU",
        "attained",
        "TTFT\np50",
        "p99",
        "TPOT\np50",
        "p99",
        "",
    ):
        table.add_column(name, justify="left" if name in ("arm", "") else "right")
    for run in runs:
        l = run["overall"]["latency_ms"]  # noqa: E741
        flags = [
            *(["invalid"] if run["invalid"] else []),
            *(["not stationary"] if run["saturation"]["saturated"] else []),
        ]
        table.add_row(
            run["arm"],
            number(run["rate"]),
            str(run["repetition"]),
            number(run["load"]["offered_rps"]),
            number(run["goodput"]["requests_ps"]),
            number(run["goodput"]["requests_ps_per_gpu"], 3),
            f"{run['overall']['attainment'] or 0:.1%}",
            *(number(l[m][p], 1) for m, p in (("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"), ("tpot", "p99"))),
            ", ".join(flags),
        )
    return table


def goal_of(search: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    return "whole run" if search.get("judged") == "runs" else f"{answer['goal']:.0%}"


def _search(search: Mapping[str, Any], scenario: Mapping[str, str]) -> Table:
    devices = _devices(search["gpus"], scenario)
    table = Table(title=f"highest rate of {search['arm']} ({devices})", title_justify="left")
    for name in ("goal", "req/s", "req/s per GPU", "fails at", "95 % sure of", "95 % sure not"):
        table.add_column(name, justify="right")
    for a in search["answers"]:
        table.add_row(
            goal_of(search, a),
            number(a["low"], 3),
            number(a["per_gpu"], 3),
            number(a["high"], 3),
            number(a["surely"], 3),
            number(a["surely_not"], 3),
        )
    return table


def _comparison(data: Mapping[str, Any]) -> Group:
    found = standings(data["runs"])
    lines = [*data["comparison"]["verdicts"], *(f"{one.name}: {'; '.join(headline(one))}" for one in found)]
    title = Text("comparison", style="bold")
    title.append(
        "; good req/s here: while requests are sent; in the table of runs: until the last answer", "not bold dim"
    )
    return Group(title, *map(Text, [*lines, *remarks(found)]))
