"""How much of what a layout holds the traffic takes, and how many GPUs would do: what a rate alone asks for. Pure (R-63)."""

import math
from dataclasses import dataclass
from typing import Any

from gateway.wording import counted
from loadgen.plan.revision import Figure, Revision


@dataclass(frozen=True, slots=True)
class Load:
    """`now`: the running layout, None where it holds no rate or was not looked at. `new`: the best one found, on as many GPUs.

    `headroom` is the share of a layout's highest rate that stays free. Fewer GPUs are spoken of only where they would leave
    twice as much, so that the same rate does not ask for one more right after.
    """

    rate_ps: float
    headroom: float
    now: Figure | None
    new: Figure
    advised: bool

    @classmethod
    def of(cls, rate_ps: float, headroom: float, revision: Revision) -> "Load":
        return cls(rate_ps, headroom, revision.now, revision.new, revision.advised)

    @property
    def kept(self) -> Figure:
        """The layout that goes on: the new one where a change is advised."""
        return self.new if self.advised or self.now is None else self.now

    def share(self, figure: Figure) -> float:
        return self.rate_ps / figure.rate

    def gpus(self, figure: Figure, spare: float, rate_ps: float | None = None) -> int:
        """In proportion, in whole engines: larger fleets do a little better than that, smaller ones worse. `rate_ps`: what the
        layout holds, if not its mean."""
        layout = figure.candidate
        engine = math.gcd(*(part.engine.gpus for part in layout.parts))
        wanted = self.rate_ps / (1 - spare) * layout.gpus / (rate_ps or figure.rate)
        return max(engine, engine * math.ceil(wanted / engine - 1e-9))

    @property
    def wanted(self) -> int:
        """GPUs of the layout that goes on: more than there are, fewer, or just as many."""
        have = self.kept.candidate.gpus
        more, fewer = self.gpus(self.kept, self.headroom), self.gpus(self.kept, 2 * self.headroom)
        return more if more > have else min(have, fewer)

    @property
    def verdict(self) -> str:
        have, share, wanted = self.kept.candidate.gpus, self.share(self.kept), self.wanted
        free = f"{self.headroom:.0%}" if wanted >= have else f"{2 * self.headroom:.0%}"
        gpus = f"about {counted(wanted, 'GPU')}{self._spread(wanted)} would keep {free} free, where it has {have}"
        if share > 1:
            return f"More is needed: {gpus}."
        if wanted > have:
            return f"It is near its limit: {gpus}."
        if wanted < have:
            return f"Less would do: {gpus}."
        return "The number of GPUs fits."

    def _spread(self, wanted: int) -> str:
        """By the interval of what the layout holds."""
        kept, spare = self.kept, self.headroom if wanted >= self.kept.candidate.gpus else 2 * self.headroom
        if not (math.isfinite(kept.within.low) and kept.within.low > 0):
            return ""
        low, high = self.gpus(kept, spare, kept.within.high), self.gpus(kept, spare, kept.within.low)
        return f" ({low} to {high})" if low < high else ""

    def lines(self) -> list[str]:
        said = [] if self.now is None else [f"{self.share(self.now):.0%} of what the running layout holds"]
        if self.now is None or self.now.candidate != self.new.candidate:
            said.append(f"{self.share(self.new):.0%} of what the new one holds")
        return [f"load: {self.rate_ps:.3g} requests/s, {', '.join(said)}", self.verdict]

    def document(self) -> dict[str, Any]:
        return {
            "rate_ps": self.rate_ps,
            "share_of_now": None if self.now is None else self.share(self.now),
            "share_of_new": self.share(self.new),
            "headroom": self.headroom,
            "gpus": self.kept.candidate.gpus,
            "gpus_wanted": self.wanted,
            "verdict": self.verdict,
        }
