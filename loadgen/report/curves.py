"""Which curves a report shows, out of the summary document."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from loadgen.report.svg import Axis, Line, chart, legend

Run = Mapping[str, Any]
#: Title, SVG, labels of its lines.
Figure = tuple[str, str, list[str]]


def figures(data: Mapping[str, Any]) -> list[Figure]:
    """In the order in which people ask."""
    runs = data["runs"]
    made = [*_against_rate(runs), *_cdfs(runs), *_scales(runs), *_timelines(runs)]
    return [figure for figure in made if figure[1]]


def with_legend(figure: Figure) -> str:
    _, svg, labels = figure
    return svg + (legend(labels) if len(labels) > 1 else "")


def _arms(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run["arm"] for run in runs))


def _offered(run: Run) -> float:
    rate = run["rate"] if run["rate"] is not None else run["load"]["offered_rps"]
    return float(rate) / float(run["gpus"])


def _by_rate(runs: Sequence[Run], arm: str) -> list[tuple[float, list[Run]]]:
    grouped: dict[float, list[Run]] = {}
    for run in runs:
        if run["arm"] == arm:
            grouped.setdefault(_offered(run), []).append(run)
    return sorted(grouped.items())


def _against_rate(runs: Sequence[Run]) -> list[Figure]:
    arms = _arms(runs)
    if max((len(_by_rate(runs, arm)) for arm in arms), default=0) < 2:
        return []
    x = Axis("offered, requests/s per GPU", low=0)
    shares = [_attainment_line(arm, _by_rate(runs, arm)) for arm in arms]
    goods = [_mean_line(arm, _by_rate(runs, arm), lambda r: r["goodput"]["requests_ps_per_gpu"]) for arm in arms]
    tokens = [_mean_line(arm, _by_rate(runs, arm), lambda r: r["goodput"]["output_tokens_ps_per_gpu"]) for arm in arms]
    marks = [(0.9, "90 %"), (0.99, "99 %")]
    made = [
        (
            "Attainment against rate",
            chart("Attainment", x, Axis("good / offered", low=0, high=1, percent=True), shares, marks),
            arms,
        ),
        ("Goodput against rate", chart("Goodput", x, Axis("good requests/s per GPU", low=0), goods), arms),
        (
            "Token goodput against rate",
            chart("Token goodput", x, Axis("good output tokens/s per GPU", low=0), tokens),
            arms,
        ),
    ]
    for metric, name in (("ttft", "TTFT"), ("tpot", "TPOT")):
        lines = [
            _percentile_line(arm, i, _by_rate(runs, arm), metric, p) for i, arm in enumerate(arms) for p in (50, 99)
        ]
        title = f"{name} against rate: p50, and p99 dashed"
        made.append((title, chart(name, x, Axis(f"{name}, ms", log=True), lines), arms))
    return made


def _percentile_line(arm: str, colour: int, grouped: Sequence[tuple[float, list[Run]]], metric: str, p: int) -> Line:
    line = _mean_line(f"{arm} p{p}", grouped, lambda r: r["overall"]["latency_ms"][metric][f"p{p}"])
    return replace(line, dashed=p == 99, colour=colour)


def _attainment_line(arm: str, grouped: Sequence[tuple[float, list[Run]]]) -> Line:
    """With the interval of the single run, or the range over repetitions."""
    points, low, high = [], [], []
    for rate, runs in grouped:
        values = [r["overall"]["attainment"] or 0.0 for r in runs]
        interval = runs[0]["overall"]["attainment_95"] or {"low": None, "high": None}
        points.append((rate, fmean(values)))
        low.append(interval["low"] if len(values) == 1 else min(values))
        high.append(interval["high"] if len(values) == 1 else max(values))
    return Line(arm, points, low, high, dots=True)


def _mean_line(label: str, grouped: Sequence[tuple[float, list[Run]]], value: Any) -> Line:
    points, low, high = [], [], []
    for rate, runs in grouped:
        values = [v for r in runs if (v := value(r)) is not None]
        if values:
            points.append((rate, fmean(values)))
            low.append(min(values) if len(values) > 1 else None)
            high.append(max(values) if len(values) > 1 else None)
    return Line(label, points, low, high, dots=True)


def _label(run: Run, runs: Sequence[Run]) -> str:
    parts = [run["arm"]]
    if len({r["rate"] for r in runs}) > 1 and run["rate"] is not None:
        parts.append(f"{run['rate']:g}/s")
    if len({r["repetition"] for r in runs}) > 1:
        parts.append(f"#{run['repetition'] + 1}")
    return " ".join(parts)


def _shown(runs: Sequence[Run], most: int = 8) -> list[Run]:
    """First repetitions only, and evenly chosen rates when there are too many to tell apart."""
    first = [r for r in runs if r["repetition"] == 0]
    step = -(-len(first) // most)
    return first[:: max(1, step)]


def _cdfs(runs: Sequence[Run]) -> list[Figure]:
    made = []
    shown = _shown(runs)
    for metric, name in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2el", "E2E latency")):
        lines = [
            Line(_label(r, shown), [(ms, i / 100) for i, ms in enumerate(r["curves"]["cdf_ms"][metric])])
            for r in shown
            if metric in r["curves"]["cdf_ms"]
        ]
        svg = chart(name, Axis(f"{name}, ms", log=True), Axis("share of completed", low=0, high=1, percent=True), lines)
        made.append((f"{name}, distribution", svg, [line.label for line in lines]))
    return made


def _scales(runs: Sequence[Run]) -> list[Figure]:
    shown = [r for r in _shown(runs) if r["slo_scale"]]
    lines = [Line(_label(r, shown), [(f, a) for f, a in r["slo_scale"]], dots=True) for r in shown]
    x, y = Axis("SLO scale (smaller is stricter)"), Axis("good / offered", low=0, high=1, percent=True)
    return [
        ("Attainment against SLO scale", chart("SLO scale", x, y, lines, [(0.9, "90 %")]), [x.label for x in lines])
    ]


def _timelines(runs: Sequence[Run]) -> list[Figure]:
    shown = _shown(runs)
    x = Axis("time, s", low=0)
    opened = [Line(_label(r, shown), r["curves"]["open_requests"]) for r in shown if r["curves"]["open_requests"]]
    made = [
        (
            "Open requests over time",
            chart("Open requests", x, Axis("requests", low=0), opened),
            [line.label for line in opened],
        )
    ]
    for name, title, axis in (
        ("queue", "Queue over time", Axis("requests waiting", low=0)),
        ("kv", "KV occupancy over time", Axis("KV in use", low=0, percent=True)),
        ("preemptions", "Preemptions over time", Axis("preemptions since start", low=0)),
    ):
        lines = [line for r in shown if (line := _series(r, name, _label(r, shown))) is not None]
        made.append((title, chart(title, x, axis, lines), [line.label for line in lines]))
    return made


def _series(run: Run, name: str, label: str) -> Line | None:
    points = [(at, values[name]) for at, values in run["telemetry"]["timeline"] if name in values]
    if not points:
        return None
    if name == "preemptions":
        points = [(at, value - points[0][1]) for at, value in points]
    return Line(label, points)
