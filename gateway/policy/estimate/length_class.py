"""One class of requests: its sketch, its detector, and the table made of them."""

from collections import deque
from typing import Any

import numpy as np

from gateway.policy.estimate.bins import Bins
from gateway.policy.estimate.drift import Change, Detector
from gateway.policy.estimate.endings import Endings
from gateway.policy.estimate.estimate import LOOKUP, Estimate, Floats
from gateway.policy.estimate.knobs import Knobs
from gateway.policy.estimate.parts import Parts
from gateway.policy.estimate.posterior import posterior
from gateway.policy.estimate.prior import Prior
from gateway.policy.estimate.sketch import Sketch

#: A class is young, and not judged for drift, while it is worth less than this many times its running answers.
_GROWN = 2.0
#: Of the threshold, where a class above has passed it.
_ALERT = 1 / 2


class Table:
    """A distribution over bins, and what is read off it. `parts`: what it is made of, where it is a prior."""

    __slots__ = ("estimate", "mass", "parts", "reached")

    def __init__(self, mass: Floats, bins: Bins, parts: Parts | None = None) -> None:
        self.parts = parts
        self.mass = mass
        self.reached = mass.cumsum()
        at = self.reached.searchsorted(LOOKUP).clip(max=bins.count - 1)
        self.estimate = Estimate(bins.tokens[at])

    def pit(self, key: int) -> float:
        """Of a length in bin `key`; an atom counts with its middle."""
        return min(1.0, float(self.reached[key] - self.mass[key] / 2))


def table_of(prior: Prior, bins: Bins) -> Table:
    mass = prior.mass(bins)
    return Table(mass, bins, Parts.of(mass, bins))


class LengthClass:
    """`worth` is its effective count when the table was made."""

    def __init__(self, bins: Bins, knobs: Knobs, table: Table, now_s: float) -> None:
        self._bins, self._knobs = bins, knobs
        self._sketch = Sketch(bins, knobs.half_life_observations, knobs.half_life_s, now_s)
        self._detector = Detector(knobs.drift.slack, knobs.drift.threshold)
        self._endings: Endings | None = None  # of a class whose running answers are told
        self._recent: deque[tuple[int, bool]] = deque(maxlen=knobs.drift.remember)
        self._shares: Floats | None = None  # of the kinds in its prior, where it leans on one
        self._quick_left = 0
        self._pending = 0
        self._built_s = now_s
        self.table = table
        self.worth = 0.0
        self.young = False
        self.lasting: tuple[Change, int] | None = None  # seen in answers under way, and not told yet
        self.observations = 0
        self.drifts = 0
        self.touched_s = now_s

    def adopt(self, knobs: Knobs, now_s: float) -> None:
        """Other knobs from now on; the table is made anew when it is next asked for."""
        self._knobs = knobs
        self._sketch.forget_by(knobs.half_life_observations, knobs.half_life_s, now_s)
        self._pending = knobs.longest_tokens

    def refresh(self, parent: Table, now_s: float) -> Table:
        """The table, made anew when enough came in or enough time has passed."""
        due = self._pending > self._knobs.refresh_share * self.worth
        if due or now_s - self._built_s >= self._knobs.refresh_s:
            strength = self._knobs.shrink_observations
            self.worth = self._sketch.effective(now_s)
            ended, cut = self._sketch.weights(now_s)
            self.young = self.worth < _GROWN * self._sketch.running
            base = parent.mass if parent.parts is None else self._kinds(parent.parts, ended, cut)
            self.table = Table(posterior(base, strength, ended, cut), self._bins)
            self._built_s, self._pending = now_s, 0
        return self.table

    def _kinds(self, parts: Parts, ended: Floats, cut: Floats | None) -> Floats:
        self._shares = parts.given(ended, cut, self._shares)
        return parts.mixed(self._shares)

    def add(self, key: int, cut: bool, now_s: float) -> None:
        quick = self._quick_left > 0
        self._quick_left -= quick
        self._sketch.add(key, cut, now_s, 1 / self._knobs.drift.quick_factor if quick else 1.0)
        self._recent.append((key, cut))
        if self._endings is not None:
            self._endings.over(key, cut)
        self._pending += 1
        self.observations += 1
        self.touched_s = now_s

    def run(self, keys: list[int] | None, now_s: float, *, judge: bool, alert: bool) -> None:
        """Bins that its running answers have reached, in place of those told before. `alert`: a class above it has changed of
        late, so that less shows that this one has, too."""
        if keys is None and self._endings is None:
            return
        reached = np.bincount(keys or [], minlength=self._bins.count).astype(np.float64)
        self._sketch.under_way(None if keys is None else reached, now_s)
        if self._endings is None:
            self._endings = Endings(self._bins, self._knobs.drift.threshold)
        found = self._endings.go_on(reached, self.table.mass, judge and self._judged, _ALERT if alert else 1.0)
        if found is not None:
            self.lasting = found
            self._drift(found, now_s, over=found[0] is not Change.LONGER)

    def drifted(self, key: int, cut: bool, now_s: float) -> tuple[Change, int] | None:
        """Judges an observation that was just added against the table from before it; on a drift, forgets. Where answers under
        way are told, these are judged with it instead, and what they have shown comes back."""
        if self._endings is not None:
            found, self.lasting = self.lasting, None
            return found
        found = self._detector.observe(self.table.pit(key), cut) if self._judged else None
        if found is not None:
            self._drift(found, now_s)
        return found

    @property
    def quick(self) -> bool:
        """Whether it has changed of late."""
        return self._quick_left > 0

    @property
    def _judged(self) -> bool:
        return not self.young and self.worth >= self._knobs.drift.after_observations

    def _drift(self, found: tuple[Change, int], now_s: float, *, over: bool = True) -> None:
        """Keeps a trace of the old shape and what came since the change. `over`: what is over came after it, too; where only those
        under way have told of longer answers, it is the old ones that were over first."""
        self.drifts += 1
        change, since = found
        self._sketch.shrink_to(self._knobs.drift.keep_observations, now_s, anew=change is not Change.SHORTER)
        for key, cut in list(self._recent)[-since:] if over else ():
            self._sketch.add(key, cut, now_s)
        self._quick_left = self._knobs.drift.quick_observations
        self._pending = self._knobs.longest_tokens

    def document(self, now_s: float) -> dict[str, Any]:
        return {
            "sketch": self._sketch.document(now_s),
            "detector": self._detector.document(),
            "recent": [[key, cut] for key, cut in self._recent],
            "quick_left": self._quick_left,
            "observations": self.observations,
            "drifts": self.drifts,
            "idle_s": now_s - self.touched_s,
        }

    def load(self, document: dict[str, Any], now_s: float) -> None:
        self._sketch.load(document["sketch"])
        self._detector.load(document["detector"])
        self._recent.extend((int(key), bool(cut)) for key, cut in document["recent"])
        self._quick_left = int(document["quick_left"])
        self.observations = int(document["observations"])
        self.drifts = int(document["drifts"])
        self.touched_s = now_s - float(document["idle_s"])
        self._pending = self._knobs.longest_tokens
