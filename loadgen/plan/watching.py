"""When to plan anew: what a gateway tells of its traffic, against what the last plan was made for. Pure (R-63)."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadgen.workload.observed import LEAST, Observed

#: Of the largest distance between two distributions of lengths, below which they count as the same, however sure it is.
_SAME = 0.15
#: Kolmogorov and Smirnov's factor for a chance of 1 in 1,000.
_SURE = 1.95


@dataclass(frozen=True, slots=True)
class Rhythm:
    """`interval_s`: at most one plan in that time. `every_s`: how often distributions are compared where no drift is told:
    drifts are of answers, and prompts may change alone. Those of that time, and of the time before where too few came. `least`: requests of the new traffic that a plan is made from."""

    interval_s: float = 900.0
    every_s: float = 300.0
    least: int = 300

    def __post_init__(self) -> None:
        if self.least < LEAST:
            raise ValueError(f"a plan needs at least {LEAST} requests")


@dataclass(frozen=True, slots=True)
class Cause:
    """`text` says what has changed, "" if that is yet to be looked at. `within_s`: the new traffic is so old at most."""

    text: str
    within_s: float | None = None


class Watching:
    """Told of every account of the traffic (`heard`), of comparisons (`compared`) and of plans (`planned`)."""

    def __init__(self, rhythm: Rhythm, clock: Callable[[], float]) -> None:
        self._rhythm, self._clock = rhythm, clock
        self._events = -1  # the number of the last one that is dealt with; not known before the first account
        self._planned_s = -math.inf
        self._looked_s = clock()
        self._window_s = rhythm.every_s
        self.reference: Observed | None = None

    def heard(self, document: Mapping[str, Any]) -> Cause | None:
        """A reason to ask for the rows, if there is one now."""
        drifts, count, now_s = document["drifts"], int(document["drifts"]["count"]), self._clock()
        if self._events < 0:
            self._events = count
        if count < self._events:  # another process, which counts from the start
            self._events = 0
        if self.reference is None and document["requests"] >= self._rhythm.least:
            return Cause("")
        if now_s - self._planned_s < self._rhythm.interval_s:
            return None
        news = [event for event in drifts["newest"] if event["number"] > self._events]
        if news and (cause := self._drifted(news)):
            return cause
        if self.reference is not None and now_s - self._looked_s >= self._rhythm.every_s and not news:
            return Cause("", self._window_s)
        return None

    def _drifted(self, news: list[Mapping[str, Any]]) -> Cause | None:
        """Since the newest one, so that none of the old traffic is in it. Where they go on and on, since the first."""
        newest, first = min(news, key=_age), max(news, key=_age)
        for event in (newest, *([first] if _age(first) >= self._rhythm.interval_s else [])):
            if event["requests_since"] >= self._rhythm.least:
                more = f", and {len(news) - 1} more" if len(news) > 1 else ""
                return Cause(f"answers are {first['change']}: {' · '.join(first['class'])}{more}", _age(event))
        return None

    def compared(self, now: Observed) -> Cause | None:
        """After a cause without a text: what has changed since the last plan, or since the watch began."""
        self._looked_s = self._clock()
        if len(now.rows) < self._rhythm.least:
            self._window_s += self._rhythm.every_s  # else slow traffic is never compared
            return None
        self._window_s = self._rhythm.every_s
        if self.reference is None:
            self.reference = now
            return None
        said = shift(self.reference, now)
        return Cause(said, now.window_s) if said else None

    def planned(self, observed: Observed, document: Mapping[str, Any]) -> None:
        """A plan was made from `observed`; `document` is the account that led to it: later events are news."""
        self._events = int(document["drifts"]["count"])
        self._planned_s = self._looked_s = self._clock()
        self._window_s = self._rhythm.every_s
        self.reference = observed


def _age(event: Mapping[str, Any]) -> float:
    return float(event["age_s"])


def shift(before: Observed, now: Observed) -> str:
    """Which lengths are distributed otherwise, in words; empty where none is shown to be, or by little."""
    said = []
    for name, old, new in (
        ("prompts", [d.prompt_tokens for d in before.rows], [d.prompt_tokens for d in now.rows]),
        ("answers", [d.output_tokens for d in before.rows], [d.output_tokens for d in now.rows]),
    ):
        sure = _SURE * math.sqrt((len(old) + len(new)) / (len(old) * len(new)))
        if distance(old, new) > max(_SAME, sure):
            said.append(f"{name} are distributed otherwise (median {np.median(old):.0f} -> {np.median(new):.0f})")
    return ", ".join(said)


def distance(ours: list[int], theirs: list[int]) -> float:
    """The largest between their cumulative distributions (Kolmogorov and Smirnov's)."""
    a, b = np.sort(ours), np.sort(theirs)
    at = np.concatenate([a, b])
    return float(np.abs(a.searchsorted(at, "right") / a.size - b.searchsorted(at, "right") / b.size).max())
