"""What it costs to meet the SLO over the whole mix, short and long together (R-66, R-67).

A layout that turns long requests away spends its GPUs on short ones and looks cheap. So only a layout that attains the
goal in every class and every output length can be called the cheapest, and one that would be cheaper is named with
what it leaves out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from loadgen.report.markup import number, section, share, table

Run = Mapping[str, Any]

#: Attainment that a class or length must reach to count as served.
GOAL = 0.9
#: Costs this close are not told apart.
ALIKE = 0.05


@dataclass(frozen=True, slots=True)
class Share:
    """One class or output length on one layout, repetitions pooled."""

    label: str
    offered: int
    good: int
    rejected: int

    @property
    def attainment(self) -> float:
        return self.good / self.offered if self.offered else 0.0

    @property
    def served(self) -> bool:
        return self.attainment >= GOAL


@dataclass(frozen=True, slots=True)
class Standing:
    """One arm at one rate. `gpu_s` is all the time of all its GPUs; `money` None without a price."""

    arm: str
    rate: float | None
    gpu_s: float
    money: float | None
    completed: int
    whole: Share
    classes: tuple[Share, ...]
    lengths: tuple[Share, ...]
    valid: bool = True

    @property
    def name(self) -> str:
        return self.arm if self.rate is None else f"{self.arm} {self.rate:g}/s"

    @property
    def gpu_s_per_good(self) -> float | None:
        return self.gpu_s / self.whole.good if self.whole.good else None

    def cost_per_good(self, part: Share) -> float | None:
        """In money if there is a price, else in GPU-seconds.

        GPU time is split evenly over offered requests, so a class costs its even share over its attainment.
        """
        spent = self.gpu_s if self.money is None else self.money
        return spent / self.whole.offered / part.attainment if part.good else None

    @property
    def left_out(self) -> tuple[Share, ...]:
        """Classes and lengths below the goal; labels of the only class say nothing."""
        classes = self.classes if len(self.classes) > 1 else ()
        return tuple(part for part in (*classes, *self.lengths) if not part.served)


def standings(runs: Sequence[Run]) -> list[Standing]:
    grouped: dict[tuple[str, float | None], list[Run]] = {}
    for run in runs:
        grouped.setdefault((run["arm"], run["rate"]), []).append(run)
    return [_standing(*key, part) for key, part in grouped.items()]


def _standing(arm: str, rate: float | None, runs: Sequence[Run]) -> Standing:
    prices = [_money(run) for run in runs]
    return Standing(
        arm,
        rate,
        sum(run["cost"]["gpu_hours"] for run in runs) * 3600,
        None if any(p is None for p in prices) else sum(p for p in prices if p is not None),
        sum(run["overall"]["completed"] for run in runs),
        _pooled("all", [run["overall"] for run in runs]),
        tuple(_parts(runs, "by_class")),
        tuple(_parts(runs, "by_bucket", "outputs ")),
        not any(run["invalid"] for run in runs),
    )


def _money(run: Run) -> float | None:
    """Of the whole run; a run without a good request has no cost of good requests to come from."""
    if run["cost"].get("total") is not None:
        return float(run["cost"]["total"])
    good, per_1000 = run["overall"]["counts"]["good"], run["cost"]["per_1000_good"]
    return None if per_1000 is None else per_1000 * good / 1000


def _parts(runs: Sequence[Run], key: str, before: str = "") -> Iterator[Share]:
    for label in dict.fromkeys(k for run in runs for k in run[key]):
        yield _pooled(before + (label or "–"), [run[key][label] for run in runs if label in run[key]])


def _pooled(label: str, groups: Sequence[Mapping[str, Any]]) -> Share:
    counts = [group["counts"] for group in groups]
    return Share(
        label,
        sum(group["offered"] for group in groups),
        sum(c["good"] for c in counts),
        sum(c["rejected"] for c in counts),
    )


def headline(one: Standing) -> list[str]:
    """Three lines (R-66); rejected requests stay in the denominator of everything."""
    hours = one.gpu_s / 3600
    useful = "no request was useful" if one.gpu_s_per_good is None else f"{number(one.gpu_s_per_good)} GPU-seconds"
    cost = one.cost_per_good(one.whole)
    if one.money is not None and cost is not None:
        useful += f", {number(cost * 1000)} per 1,000"
    return [
        f"{number(one.completed / hours if hours else 0.0, 0)} completed requests per GPU-hour",
        f"cost of a useful request: {useful}",
        f"{one.whole.rejected} of {one.whole.offered} admissions rejected",
    ]


def remarks(found: Sequence[Standing]) -> list[str]:
    """At each rate where several layouts ran: which is cheapest for the whole mix, and which only looks it."""
    lines = []
    for rate in dict.fromkeys(one.rate for one in found):
        rivals = [one for one in found if one.rate == rate]
        if len(rivals) > 1:
            where = "" if rate is None else f"at {rate:g} req/s: "
            lines += [where + line for line in _ranked(rivals)]
    return lines


def _ranked(rivals: Sequence[Standing]) -> Iterator[str]:
    for one in rivals:
        if not one.valid:
            yield f"{one.arm} had an invalid run and is not ranked"
    ranked = [(one.gpu_s_per_good or math.inf, one) for one in rivals if one.valid]
    whole = [(cost, one) for cost, one in ranked if not one.left_out and cost < math.inf]
    if len(ranked) < 2:  # one that is left is the cheapest of nothing
        return
    least = min((cost for cost, _ in whole), default=math.inf)
    if whole:
        names = " and ".join(one.arm for cost, one in whole if cost <= least * (1 + ALIKE))
        yield f"cheapest for the whole mix: {names}, {number(least)} GPU-seconds a useful request"
    else:
        yield f"no layout attains {GOAL:.0%} in every class and output length, so none is cheapest"
    for cost, one in ranked:
        if one.left_out and cost < least:
            yield f"{one.arm} spends {number(cost)} GPU-seconds, but leaves out {_left_out(one)}"


def _left_out(one: Standing) -> str:
    parts = [
        f"{part.label} ({part.attainment:.0%} attained, {part.rejected} of {part.offered} rejected)"
        for part in one.left_out
    ]
    return ", ".join(parts)


def costs(data: Mapping[str, Any]) -> str:
    """The section of the page: layouts × classes and lengths, with attainment and cost."""
    found = sorted(standings(data["runs"]), key=lambda one: one.rate or 0.0)
    if not found:
        return ""
    labels = list(dict.fromkeys(p.label for one in found for p in (*one.classes, *one.lengths)))
    rows = [
        (
            one.name,
            number(one.completed / one.gpu_s * 3600 if one.gpu_s else 0.0, 0),
            number(one.gpu_s_per_good),
            number(_per_1000(one, one.whole)) if one.money is not None else "–",
            f"{one.whole.rejected} of {one.whole.offered}",
            share(one.whole.attainment),
            *(_cell(one, label) for label in labels),
        )
        for one in found
    ]
    unit = "GPU-seconds a useful request" if found[0].money is None else "cost of 1,000 useful requests"
    head = ["layout", "completed/GPU-h", "GPU-s/useful", "cost/1,000 useful", "rejected", "attained", *labels]
    told = "".join(f"<li>{escape(line)}</li>" for line in remarks(found))
    note = (
        f"<p class='dim'>Of a class or length: attained, then {unit}, then rejected if any were; ▼ below "
        f"{GOAL:.0%}. GPU time is split evenly over offered requests. Useful: met its SLO.</p>"
    )
    return section(
        "What useful requests cost, over the whole mix",
        f"<ul class='verdicts'>{told}</ul>" if told else "",
        table(head, rows),
        note,
    )


def _per_1000(one: Standing, part: Share) -> float | None:
    cost = one.cost_per_good(part)
    return None if cost is None else cost * 1000


def _cell(one: Standing, label: str) -> str:
    part = next((p for p in (*one.classes, *one.lengths) if p.label == label), None)
    if part is None:
        return "–"
    cost = one.cost_per_good(part) if one.money is None else _per_1000(one, part)
    lost = f" · {part.rejected} rejected" if part.rejected else ""
    return f"{'' if part.served else '▼ '}{part.attainment:.1%} · {number(cost)}{lost}"
