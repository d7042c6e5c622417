"""The report as one HTML page: nothing is fetched, so it can be mailed, archived and printed."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from loadgen.report.ablation import ablation
from loadgen.report.alarms import alarms
from loadgen.report.console import conditions, goal_of
from loadgen.report.curves import figures, with_legend
from loadgen.report.details import definitions, groups, scenario, stages, workload
from loadgen.report.markup import Run, interval, name_of, number, section, share, table
from loadgen.report.mix import costs
from loadgen.report.style import CSS


def page(data: Mapping[str, Any]) -> str:
    """All of it, out of the summary document alone."""
    title = f"loadgen {data['kind']}: {data['workload']['name']}"
    runs = sorted(data["runs"], key=lambda r: (r["rate"] or 0, r["repetition"]))
    body = "\n".join(
        part
        for part in (
            f"<header><h1>{escape(title)}</h1><p>{escape(data['started'])}, {escape(_tool(data))}</p></header>",
            alarms(data["runs"]),
            _headline(data),
            _comparison(data),
            "" if data["comparison"] is None else ablation(data["comparison"]),
            costs(data),
            _searches(data["searches"]),
            _runs(runs),
            _figures(data),
            groups(runs),
            stages(runs),
            workload(data),
            scenario(data),
            definitions(data),
        )
        if part
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body><main>\n{body}\n</main></body></html>\n"
    )


def _tool(data: Mapping[str, Any]) -> str:
    tool = data["tool"]
    return f"{tool['name']} {tool['version']} ({tool['git']}), Python {tool['python']}"


def _headline(data: Mapping[str, Any]) -> str:
    if data["comparison"] is not None or data["searches"] or not data["runs"]:
        return ""
    best = max(data["runs"], key=lambda r: r["goodput"]["requests_ps_per_gpu"])
    cost = best["cost"]
    tiles = [
        (number(best["goodput"]["requests_ps_per_gpu"], 3), "good requests/s per GPU"),
        (number(best["goodput"]["output_tokens_ps_per_gpu"], 0), "good output tokens/s per GPU"),
        (share(best["overall"]["attainment"]), "of offered requests met the SLO"),
        (number(cost["completed_per_gpu_hour"], 0), "completed requests per GPU-hour"),
        (number(cost["per_1000_good"]), "cost of 1,000 good requests"),
        (str(best["overall"]["counts"]["rejected"]), "rejected, and counted"),
    ]
    inside = "".join(f"<div><b>{escape(v)}</b><span>{escape(t)}</span></div>" for v, t in tiles)
    return f"<section class='tiles' aria-label='headline, {escape(name_of(best))}'>{inside}</section>"


def _comparison(data: Mapping[str, Any]) -> str:
    c = data["comparison"]
    if c is None:
        return ""
    arms = table(["arm", "GPUs", "what"], [(a["name"], f"{a['gpus']:g}", a["origin"]) for a in c["arms"]])
    verdicts = "<ul class='verdicts'>" + "".join(f"<li>{escape(v)}</li>" for v in c["verdicts"]) + "</ul>"
    same = (
        "All arms ran the same seeded schedules with the same prompts."
        if c["same_work"]
        else "<b>The arms did not run the same schedules: this is no comparison.</b>"
    )
    rows = [
        (
            f"{x['arm']} − {x['against']}",
            "–" if x["rate"] is None else f"{x['rate']:g}",
            x["class"] or "all",
            str(x["repetitions"]),
            number(x["good_per_gpu"], 3),
            number(x["good_per_gpu_against"], 3),
            interval(x["difference"], 3),
            interval(x["attainment_difference"], 3),
            x["winner"] or ("none shown" if x["valid"] else "invalid run"),
        )
        for x in c["contests"]
    ]
    head = [
        "arms",
        "req/s",
        "class",
        "runs",
        "good/s/GPU, sending",
        "against",
        "difference, 95 %",
        "attainment diff., 95 %",
        "winner",
    ]
    return section("Who wins where", verdicts, arms, f"<p>{same}</p>", table(head, rows) if rows else "")


def _searches(searches: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            s["arm"],
            f"{s['gpus']:g}",
            goal_of(s, a),
            number(a["low"], 3),
            number(a["per_gpu"], 3),
            number(a["high"], 3) if a["high"] is not None else f"held up to {s['highest']:g}",
            f"{number(a['surely'], 3)} to {number(a['surely_not'], 3)}",
        )
        for s in searches
        for a in s["answers"]
    ]
    head = ["arm", "GPUs", "goal", "highest req/s", "per GPU", "fails at", "95 % bounds"]
    return section("Highest rate", table(head, rows)) if rows else ""


def _runs(runs: Sequence[Run]) -> str:
    head = [
        "run",
        "offered/s",
        "achieved/s",
        "offered",
        "good",
        "missed",
        "rejected",
        "failed",
        "timed out",
        "attained",
    ]
    head += [
        "good/s/GPU",
        "tok/s/GPU",
        "TTFT p50",
        "p90",
        "p99",
        "TPOT p50",
        "p90",
        "p99",
        "ITL p99",
        "E2E p50",
        "p99",
        "lag p99",
    ]
    rows = []
    for r in runs:
        o, load, c = r["overall"], r["load"], r["overall"]["counts"]
        lat = o["latency_ms"]
        rows.append(
            (
                name_of(r),
                number(load["offered_rps"]),
                number(load["achieved_rps"]),
                str(o["offered"]),
                *(str(c[k]) for k in ("good", "slo_missed", "rejected", "failed", "timed_out")),
                share(o["attainment"]),
                number(r["goodput"]["requests_ps_per_gpu"], 3),
                number(r["goodput"]["output_tokens_ps_per_gpu"], 0),
                *(number(lat["ttft"][p], 1) for p in ("p50", "p90", "p99")),
                *(number(lat["tpot"][p], 1) for p in ("p50", "p90", "p99")),
                number(lat["itl"]["p99"], 1),
                *(number(lat["e2el"][p], 1) for p in ("p50", "p99")),
                number(load["send_lag_ms"]["p99"], 1),
            )
        )
    skipped = sum(r["tpot_not_applicable"] for r in runs)
    told = [
        f"<li>{escape(name_of(r))}: {escape(conditions(r['relative']))}</li>" for r in runs if r["relative"] is not None
    ]
    level = f"<h3>SLO on the whole run</h3><ul>{''.join(told)}</ul>" if told else ""
    note = f"<p>{skipped} outputs had one token; a TPOT limit was skipped for them.</p>" if skipped else ""
    return section(
        "Runs", table(head, rows), level, note, "<p class='dim'>Latencies in ms, over completed requests.</p>"
    )


def _figures(data: Mapping[str, Any]) -> str:
    made = "".join(f"<figure><figcaption>{escape(f[0])}</figcaption>{with_legend(f)}</figure>" for f in figures(data))
    return section("Curves", f"<div class='figures'>{made}</div>") if made else ""
