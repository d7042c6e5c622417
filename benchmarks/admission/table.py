"""The contest as a table: for a terminal and, the same text, for a page."""

from benchmarks.admission.contenders import CONTENDERS
from benchmarks.admission.contest import Contest, mean_of
from benchmarks.admission.trial import Figures

_HEAD = (
    "load", "rule", "seeds", "goodput /s", "of oracle", "good tokens of oracle", "SLO met", "preempted /req", "recomputed", "KV used", "over", "full",
    "turned away", "start p99 s (short/mid/long)", "TPOT p99 ms (short/mid/long)",
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


def _row(contest: Contest, load: float, name: str, figures: list[Figures]) -> list[str]:
    goodput = mean_of(each.goodput for each in figures)
    shares = [contest.share_of(name, load, field) for field in ("goodput", "good_tokens")]

    def average(field: str) -> float:
        return mean_of(getattr(each, field) for each in figures).value

    return [
        f"{load:.0%}",
        CONTENDERS[name].title,
        str(len(figures)),
        f"{goodput:.2f}",
        *("" if share is None else f"{share:.1%}" for share in shares),
        f"{average('good_share'):.1%}",
        f"{average('preemptions'):.3f}",
        f"{mean_of(each.recomputed for each in figures):.2%}",
        f"{average('kv_used'):.1%}",
        f"{average('overrun'):.2%}",
        f"{average('full'):.2%}",
        f"{average('rejected'):.1%}",
        _tails(figures, "start_p99_s", 1.0, 1),
        _tails(figures, "tpot_p99_s", 1e3, 0),
    ]


def _tails(figures: list[Figures], field: str, unit: float, digits: int) -> str:
    columns = zip(*([getattr(bucket, field) for bucket in each.buckets] for each in figures), strict=True)
    return " / ".join(f"{mean_of(column).value * unit:.{digits}f}" for column in columns)
