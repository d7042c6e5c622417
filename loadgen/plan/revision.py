"""A new plan against the layout that runs: whether to change, and what (R-63)."""

import difflib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import yaml

from loadgen.measure.interval import Interval, mean_interval
from loadgen.plan.candidate import HAND_OFF_FROM, WORKER_NAMES, Candidate
from loadgen.plan.duel import Duel
from loadgen.plan.layout_document import layout_document
from loadgen.plan.plan import Planned
from loadgen.plan.race import Stage
from loadgen.plan.ranking import Row

#: Of a pool's engine, what a plan decides.
_PLANNED = ("profile", "max_num_batched_tokens", "max_num_seqs", "pp", "tp")


@dataclass(frozen=True, slots=True)
class Figure:
    """Requests/s of a whole layout at the goal."""

    candidate: Candidate
    goal: float
    rate: float
    within: Interval

    @classmethod
    def of(cls, row: Row) -> "Figure":
        return cls(row.candidate, row.goal, row.rate, row.intervals[row.goal])

    def __str__(self) -> str:
        gpus, low, high = self.candidate.gpus, self.within.low, self.within.high
        spread = f", {max(0.0, low) / gpus:.3g} to {high / gpus:.3g}" if isfinite(low) else ""
        return f"{self.candidate.label}: {self.rate / gpus:.3g} requests/s per GPU at {self.goal:.0%}{spread}"

    def document(self) -> dict[str, Any]:
        gpus = self.candidate.gpus
        spread = [bound / gpus if isfinite(bound) else None for bound in (self.within.low, self.within.high)]
        return {
            "layout": self.candidate.label,
            "goal": self.goal,
            "rate_ps_per_gpu": self.rate / gpus,
            "rate_ps_per_gpu_95": spread,
        }


@dataclass(frozen=True, slots=True)
class Revision:
    """`now`: how the running layout does with the new traffic; None where it has no rate. `seen`: whether it was looked at.

    `gain` is the winner's lead as a share of the running layout's rate, on the same seeds.
    """

    now: Figure | None
    new: Figure
    seen: bool
    margin: float
    gain: float
    gain_95: Interval

    @classmethod
    def of(cls, planned: Planned, margin: float, duel: Duel | None = None) -> "Revision":
        """`planned` was asked with the layout that runs. `duel`: of the two alone, on seeds that the plan had not."""
        new, now = Figure.of(planned.winner), planned.running
        if now is None:
            standing = next((s for s in planned.standings if s.candidate == planned.asked.running), None)
            seen = standing is not None and standing.stage is not Stage.UNTRIED
            return cls(
                None, new, seen, margin, inf if seen else 0.0, Interval(inf, inf) if seen else Interval(-inf, inf)
            )
        if duel is not None and duel.now_rate:
            goal = planned.winner.goal
            figures = (
                Figure(now.candidate, goal, duel.now_rate, mean_interval(duel.now)),
                Figure(new.candidate, goal, duel.new_rate, mean_interval(duel.new)),
            )
            return cls(*figures, True, margin, duel.gain, duel.gain_95)
        if now.behind is None or now.behind_95 is None:
            return cls(Figure.of(now), new, True, margin, 0.0, Interval(0.0, 0.0))
        scale = new.rate / now.rate  # behind is a share of the winner's rate
        spread = Interval(now.behind_95.low * scale, now.behind_95.high * scale)
        return cls(Figure.of(now), new, True, margin, now.behind * scale, spread)

    @property
    def same(self) -> bool:
        return self.now is not None and self.now.candidate == self.new.candidate

    @property
    def advised(self) -> bool:
        """A lead of the margin at least, and one whose interval leaves no doubt that it is a lead."""
        return self.seen and not self.same and self.gain >= self.margin and self.gain_95.low > 0

    @property
    def verdict(self) -> str:
        if not self.seen:
            return "No word on a change: the running layout was not looked at in the time there was."
        if self.now is None:
            return "Change: the running layout does not hold the limits at any rate that was tried."
        if self.same:
            return "Keep: the running layout is the best one found."
        lead = f"{self.gain:+.1%}{self._spread}"
        if self.advised:
            return f"Change: {lead}, with a margin of {self.margin:.1%}."
        if self.gain < self.margin:
            return f"Keep: {lead} is within the margin of {self.margin:.1%}."
        if not isfinite(self.gain_95.low):
            return f"Keep: {lead} is not shown; a longer --budget has more runs."
        return f"Keep: {lead} is no difference shown."

    @property
    def _spread(self) -> str:
        low, high = self.gain_95.low, self.gain_95.high
        return f" ({low:+.1%} to {high:+.1%})" if isfinite(low) else " (too few runs of both for an interval)"

    def lines(self) -> list[str]:
        """Goodput per GPU of both, with intervals, and the verdict."""
        now = "no rate at which it holds the limits" if self.now is None else str(self.now)
        if not self.seen:
            now = "not looked at"
        return [f"now: {now}", f"new: {self.new}", self.verdict]

    def document(self) -> dict[str, Any]:
        return {
            "advised": self.advised,
            "verdict": self.verdict,
            "margin": self.margin,
            "gain": self.gain if isfinite(self.gain) else None,
            "gain_95": [bound if isfinite(bound) else None for bound in (self.gain_95.low, self.gain_95.high)],
            "now": None if self.now is None else self.now.document(),
            "new": self.new.document(),
        }


def revised(running: Mapping[str, Any], new: Candidate) -> dict[str, Any]:
    """The document that runs with the planned pools in it; what a plan does not decide stays. Raises LoadgenError."""
    planned, document = layout_document(new), deepcopy(dict(running))
    top = document["engine"] = {**(document.get("engine") or {}), **planned["engine"]}
    before = document.get("layout") or {}
    pools = {name: before.get(name) or {} for name in WORKER_NAMES.values()}
    profiled = "profile" in top or any("profile" in (pool.get("engine") or {}) for pool in pools.values())
    document["layout"] = {name: value for name, value in before.items() if name not in pools} | {
        name: _pool(pools[name], pool, top, profiled=profiled) for name, pool in planned["layout"].items()
    }
    routing = (document.get("gateway") or {}).get("routing") or {}
    if new.local_below != routing.get("local_prefill_below_tokens", HAND_OFF_FROM):
        routing = {**routing, "local_prefill_below_tokens": new.local_below}
        document["gateway"] = {**(document.get("gateway") or {}), "routing": routing}
    return document


def _pool(before: Mapping[str, Any], planned: Mapping[str, Any], top: Mapping[str, Any], *, profiled: bool) -> Any:
    """A document that names no profile is for real engines, which have no use for one."""
    known = before.get("engine") or {}
    engine = {key: value for key, value in known.items() if key not in _PLANNED or key in planned["engine"]}
    engine |= planned["engine"]
    if not profiled:
        del engine["profile"]
    if "pp" in top:
        engine.setdefault("pp", 1)
    return {**before, **planned, "engine": engine}


def text_of(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False)


def difference(running: Mapping[str, Any], revised: Mapping[str, Any]) -> list[str]:
    """What changes in the document, as a diff without its head."""
    before, after = text_of(running).splitlines(), text_of(revised).splitlines()
    return list(difflib.unified_diff(before, after, "running", "planned", lineterm=""))[2:]
