"""The sections below the curves: tails, the inside of the target, workload, scenario, definitions."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import orjson

from loadgen.report.markup import Run, name_of, number, section, share, table


def groups(runs: Sequence[Run]) -> str:
    parts = []
    for title, key in (("class", "by_class"), ("tenant", "by_tenant"), ("output length, tokens", "by_bucket")):
        if any(len(r[key]) > 1 for r in runs):
            parts += [f"<h3>By {title}</h3>", _group_table(runs, key)]
    return section("Tails, never only the average", *parts)


def _group_table(runs: Sequence[Run], key: str) -> str:
    head = [
        "group",
        "run",
        "offered",
        "finished",
        "rejected",
        "timed out",
        "left",
        "attained",
        "TTFT p50",
        "p95",
        "p99",
    ]
    head += ["TPOT p50", "p95", "p99", "E2E p50", "p95", "p99", "slowdown p50", "p99"]
    rows = []
    for name in dict.fromkeys(k for r in runs for k in r[key]):
        for r in runs:
            g = r[key].get(name)
            if g is None:
                continue
            slow = g["slowdown"] or {"p50": None, "p99": None}
            rows.append(
                (
                    name or "–",
                    name_of(r),
                    str(g["offered"]),
                    str(g["completed"]),
                    str(g["counts"]["rejected"]),
                    str(g["counts"]["timed_out"]),
                    str(g["abandoned"]),
                    share(g["attainment"]),
                    *(
                        number(g["latency_ms"][m][p], 1)
                        for m in ("ttft", "tpot", "e2el")
                        for p in ("p50", "p95", "p99")
                    ),
                    number(slow["p50"]),
                    number(slow["p99"]),
                )
            )
    return table(head, rows)


def stages(runs: Sequence[Run]) -> str:
    known = [r for r in runs if r["stages_ms"]]
    stages = list(known[0]["stages_ms"]) if known else []
    rows = [
        (
            name_of(r),
            *(f"{number(r['stages_ms'][s]['mean'], 1)} / {number(r['stages_ms'][s]['p99'], 1)}" for s in stages),
        )
        for r in known
    ]
    counted = [r for r in runs if r["telemetry"]["counts"]]
    names = ("preemptions", "recomputed_tokens", "handoffs", "bytes_moved")
    counts = [
        (
            name_of(r),
            *(number(r["telemetry"]["counts"].get(k), 0) for k in names),
            share(r["telemetry"]["peaks"].get("kv")),
            share(r["telemetry"]["means"].get("kv")),
        )
        for r in counted
    ]
    told = "<p class='dim'>Stages: mean / p99 in ms, by the gateway's breakdown; prefill is by whichever worker computed the prompt.</p>"
    return section(
        "Inside the target",
        table(["run", *(s.replace("_", " ") for s in stages)], rows) + told if rows else "",
        table(["run", "preemptions", "recomputed tokens", "hand-offs", "bytes moved", "KV peak", "KV mean"], counts)
        if counts
        else "",
    )


def workload(data: Mapping[str, Any]) -> str:
    w = data["workload"]
    d = w["description"]
    head = ["", "mean", "p50", "p90", "p95", "p99", "max"]
    rows = [
        (name, *(number(d[key][p], 0) for p in ("mean", "p50", "p90", "p95", "p99", "max")))
        for name, key in (("input tokens", "input_tokens"), ("output tokens", "output_tokens"))
    ]
    lines = [
        w["arrivals"],
        f"seed {w['seed']}, salt {w['salt']}, sessions {w['sessions']}, {d['requests']} requests in the first schedule",
    ]
    if d["shared_block_share"] is not None:
        lines.append(f"{d['shared_block_share']:.1%} of prompt blocks seen before")
    buckets = ", ".join(f"{k}: {v:.1%}" for k, v in d["outputs_by_bucket"].items())
    notes = [*w["notes"], *dict.fromkeys(n for r in data["runs"] for n in r["notes"])]
    items = "".join(f"<li>{escape(t)}</li>" for t in [*lines, f"outputs by tokens: {buckets}", *notes])
    return section("Workload", table(head, rows), f"<ul>{items}</ul>")


def scenario(data: Mapping[str, Any]) -> str:
    rows = [(k.replace("_", " "), str(v)) for k, v in data["scenario"].items()]
    config = escape(orjson.dumps(data["config"], option=orjson.OPT_INDENT_2).decode())
    return section(
        "Where this holds",
        table(["fact", "value"], rows),
        "<p>A run on one machine is an upper bound for that machine; it says nothing about several.</p>",
        f"<details><summary>Configuration of the command</summary><pre>{config}</pre></details>",
    )


def definitions(data: Mapping[str, Any]) -> str:
    slo = data["slo"]
    limits = (
        "".join(f"<li>{escape(line)}</li>" for line in slo["limits"])
        or "<li>none: every completed request is good</li>"
    )
    source = f" ({escape(slo['name'])}; {escape(slo['source'])})" if slo["name"] else ""
    return section(
        "What the words mean",
        f"<p>SLO: {escape(slo['form'])}{source}; times in ms.</p><ul>{limits}</ul>",
        "<p>In comparisons good/s is per second of sending, elsewhere over the run's duration, last answers included.</p>"
        "<p>Good: succeeded and met every limit that applies. Attainment: good over <b>offered</b>; rejected, failed and "
        "timed-out requests stay in the denominator. TTFT: intended send to the first chunk with content. E2E: intended "
        "send to the end of the stream. TPOT: (E2E − TTFT) / (output tokens − 1), not applicable to one token. ITL: time "
        "between tokens as received; tokens of one chunk arrive together. Request goodput: good requests over the run's "
        "duration. Per GPU: over all GPUs of the arm. Send lag: actual − intended send.</p>",
    )
