"""What was asked of late, for whoever plans the layout: arrivals, lengths and drifts. No text, and no tenant (R-63)."""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from gateway.observe.surface_observer import SilentSurfaceObserver
from gateway.policy.estimate import Drift, untenanted
from gateway.request.errors import STATUS
from gateway.request.phase import Phase
from gateway.request.record import Record

SCHEMA = "tandem-traffic/1"
#: Drift events that are told, the newest last.
_EVENTS = 32
_QUANTILES = (0.5, 0.9, 0.99)


class Known(StrEnum):
    """How an answer's length is known."""

    DONE = "done"
    CUT = "cut"  # it failed, was refused or left: at least as long as it had become
    OPEN = "open"  # it still runs: the same


@dataclass(frozen=True, slots=True)
class Asked:
    """One request; tokens of all its answers together, as they came and as were expected before the first."""

    at_s: float
    klass: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    known: Known
    expected_tokens: int

    @classmethod
    def of(cls, record: Record) -> "Asked":
        known = Known.DONE if record.phase is Phase.DONE else Known.CUT if record.phase.final else Known.OPEN
        return cls(
            record.started_s,
            record.klass,
            record.prompt_tokens,
            record.cached_tokens,
            record.completion_tokens,
            known,
            round(record.estimated_tokens),
        )

    @property
    def likely_tokens(self) -> int:
        return self.output_tokens if self.known is Known.DONE else max(self.output_tokens, self.expected_tokens)


class Traffic(SilentSurfaceObserver):
    """Keeps the last `most` requests that ended.

    The window begins where every later arrival is still known: requests leave in the order in which they ended, so of those
    that arrived together the short ones go first, and what would be left of them is long.
    """

    def __init__(self, most: int, began_s: float) -> None:
        self._most = most
        self._kept: deque[Asked] = deque()
        self._from_s = began_s

    def ended(self, record: Record) -> None:
        if not self._most or not _counts(record):
            return
        self._kept.append(Asked.of(record))
        if len(self._kept) > self._most:
            self._from_s = max(self._from_s, self._kept.popleft().at_s)

    def seen(self, running: Iterable[Record], now_s: float, within_s: float = math.inf) -> "Seen":
        """`running`: the requests that have not ended. `within_s`: only those that arrived so lately."""
        from_s = max(self._from_s, now_s - within_s)
        rows = [*self._kept, *(Asked.of(record) for record in running if _counts(record))]
        return Seen(tuple(sorted([row for row in rows if row.at_s > from_s], key=lambda row: row.at_s)), from_s, now_s)


def _counts(record: Record) -> bool:
    """Not what was wrong as such, or never got as far as being planned: nobody would have computed it."""
    wrong = record.reason is not None and STATUS[record.reason] == 400
    return not wrong and record.prompt_tokens > 0 and (record.estimated_tokens > 0 or record.completion_tokens > 0)


@dataclass(frozen=True, slots=True)
class Seen:
    """All arrivals between two moments, in their order."""

    rows: tuple[Asked, ...]
    from_s: float
    now_s: float

    def document(self, drifts: int, newest: Sequence[Drift], *, rows: bool) -> dict[str, Any]:
        """`drifts`: how many there ever were, the last of them in `newest`. Moments are told as ages."""
        window_s = self.now_s - self.from_s
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "window_s": round(window_s, 3),
            "requests": len(self.rows),
            "rate_ps": round(len(self.rows) / window_s, 4) if window_s > 0 else None,
            "gap_cv": _gap_cv([row.at_s for row in self.rows]),
            "known": {known.value: sum(row.known is known for row in self.rows) for known in Known},
            "classes": {name: _lengths(rows) for name, rows in sorted(self._by_class().items())},
            "drifts": {"count": drifts, "newest": self._events(drifts, newest)},
        }
        if rows:
            document["columns"] = ["age_s", "class", "prompt", "cached", "output", "known", "expected"]
            document["rows"] = [
                [
                    round(self.now_s - row.at_s, 4),
                    row.klass,
                    row.prompt_tokens,
                    row.cached_tokens,
                    row.output_tokens,
                    row.known.value,
                    row.expected_tokens,
                ]
                for row in self.rows
            ]
        return document

    def _by_class(self) -> dict[str, list[Asked]]:
        found: dict[str, list[Asked]] = {}
        for row in self.rows:
            found.setdefault(row.klass, []).append(row)
        return found

    def _events(self, drifts: int, newest: Sequence[Drift]) -> list[dict[str, Any]]:
        told = list(newest)[-_EVENTS:]
        arrivals = [row.at_s for row in self.rows]
        return [
            {
                "number": drifts - len(told) + place,
                "age_s": round(self.now_s - drift.at_s, 3),
                "requests_since": len(arrivals) - bisect_left(arrivals, drift.at_s),
                "class": list(untenanted(drift.key)),
                "change": drift.change.value,
                "answers": drift.observations,
            }
            for place, drift in enumerate(told, 1)
        ]


def _lengths(rows: Sequence[Asked]) -> dict[str, Any]:
    return {
        "requests": len(rows),
        "prompt": _quantiles([row.prompt_tokens for row in rows]),
        "cached_share": round(sum(r.cached_tokens for r in rows) / sum(r.prompt_tokens for r in rows), 4),
        "output": _quantiles([row.likely_tokens for row in rows]),
    }


def _quantiles(values: Sequence[int]) -> dict[str, float]:
    order = sorted(values)
    found = {f"p{share * 100:g}": order[min(len(order) - 1, int(share * len(order)))] for share in _QUANTILES}
    return {"mean": round(sum(order) / len(order), 1), **found}


def _gap_cv(times: Sequence[float]) -> float | None:
    """Of the gaps between arrivals: 1 for a Poisson process, more for bursts. None of fewer than three."""
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    if len(gaps) < 2 or mean <= 0:
        return None
    return round(math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean, 4)
