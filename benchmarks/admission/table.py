"""The contest as a table: for a terminal and, the same text, for a page."""

from itertools import pairwise

import numpy as np

from benchmarks.admission.contenders import CONTENDERS, ORACLE
from benchmarks.admission.contest import Contest, mean_of
from benchmarks.admission.trial import Figures

_HEAD = (
    "load", "rule", "seeds", "goodput /s", "of oracle", "good tokens of oracle", "SLO met", "moves /min", "preempted /req", "recomputed", "KV used", "over", "full",
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
    for load, name in contest.rows():
        lines.append(f"| {load:.0%} | {CONTENDERS[name].title} | {' | '.join(_course(contest, load, name))} |")
    return "\n".join(lines)


def _course(contest: Contest, load: float, name: str) -> list[str]:
    mine, theirs = ({cell.seed: each.course for cell, each in contest.figures.items() if (cell.contender, cell.load) == (who, load)}
                    for who in (name, ORACLE))  # fmt: skip
    pairs = [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]
    if not pairs:
        return [f"{goodput:.2f}/s" for goodput in np.mean(list(mine.values()), axis=0)]
    one, other = np.mean(pairs, axis=0)
    return [f"{share:.1%}" for share in one / other]


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
        f"{average('moves'):.1f}",
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
