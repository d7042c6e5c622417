"""The contest as a table: for a terminal and, the same text, for a page."""

from itertools import pairwise

import numpy as np

from benchmarks.admission.contenders import CONTENDERS, ORACLE
from benchmarks.admission.contest import Contest, mean_of
from benchmarks.admission.trial import Figures

_HEAD = (
    "load", "rule", "seeds", "goodput /s", "of oracle", "good tokens of oracle", "SLO met", "preempted /req", "recomputed", "KV used", "over", "full",
    "turned away", "start p99 s (short/mid/long)", "TPOT p99 ms (short/mid/long)", "tokens of oracle", "tokens per KV of oracle",
)  # fmt: skip


def markdown(contest: Contest) -> str:
    """One row a load and rule, means over the seeds; ± is half of a 95 % interval."""
    lines = [
        f"{contest.workload.name}: 100 % is {contest.workload.capacity_per_s:g} requests/s",
        "",
        "| " + " | ".join(_HEAD) + " |",
        "|" + " --- |" * len(_HEAD),
    ]
    for (load, name), figures in contest.rows().items():
        lines.append("| " + " | ".join(_row(contest, load, name, figures)) + " |")
    return "\n".join(lines)


def course(contest: Contest) -> str:
    """Goodput of the oracle's by time of arrival: whether what is gained early is paid for later."""
    window = contest.workload.window
    edges = [window.warm_s + n * window.length_s / 4.0 for n in range(-1, 5)]
    spans = [f"{start:g} to {end:g} s" for start, end in pairwise(edges)]
    lines = [f"| load | rule | {' | '.join(spans)} |", "|" + " --- |" * (len(spans) + 2)]
    rows = contest.rows()
    for (load, name), figures in rows.items():
        whole = np.mean([each.course for each in figures], axis=0)
        oracle = [each.course for each in rows.get((load, ORACLE), ())]
        shares = (
            [f"{share:.1%}" for share in whole / np.mean(oracle, axis=0)]
            if oracle
            else [f"{one:.2f}/s" for one in whole]
        )
        lines.append(f"| {load:.0%} | {CONTENDERS[name].title} | {' | '.join(shares)} |")
    return "\n".join(lines)


def _row(contest: Contest, load: float, name: str, figures: list[Figures]) -> list[str]:
    goodput = mean_of(each.goodput for each in figures)

    def average(field: str) -> float:
        return mean_of(getattr(each, field) for each in figures).value

    return [
        f"{load:.0%}",
        CONTENDERS[name].title,
        str(len(figures)),
        f"{goodput:.2f}",
        *(_share(contest, load, name, field) for field in ("goodput", "good_tokens")),
        f"{average('good_share'):.1%}",
        f"{average('preemptions'):.3f}",
        f"{mean_of(each.recomputed for each in figures):.2%}",
        f"{average('kv_used'):.1%}",
        f"{average('overrun'):.2%}",
        f"{average('full'):.2%}",
        f"{average('rejected'):.1%}",
        _tails(figures, "start_p99_s", 1.0, 1),
        _tails(figures, "tpot_p99_s", 1e3, 0),
        *(_share(contest, load, name, field) for field in ("served", "served_per_kv")),
    ]


def _share(contest: Contest, load: float, name: str, field: str) -> str:
    share = contest.share_of(name, load, field)
    return "" if share is None else f"{share:.1%}"


def _tails(figures: list[Figures], field: str, unit: float, digits: int) -> str:
    columns = zip(*([getattr(bucket, field) for bucket in each.buckets] for each in figures), strict=True)
    return " / ".join(f"{mean_of(column).value * unit:.{digits}f}" for column in columns)
