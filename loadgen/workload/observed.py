"""Traffic as a gateway saw it: what `tandem traffic -o FILE` writes and GET /tandem/v1/traffic?rows=1 answers."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.workload.mix import Mix, Part
from loadgen.workload.trace import TraceWorkload

SCHEMA = "tandem-traffic/1"
#: Fewer requests say too little to plan by.
LEAST = 50
#: Cached tokens are kept in whole ones of these.
_BLOCK_TOKENS = 64
#: So few longer answers say nothing of how much longer.
_FEW = 20
#: Fractions of multiples of it are spread evenly (the golden ratio).
_SCATTER = 1000 * 0.6180339887498949
#: No prompt or answer has more tokens, and no account is of more seconds: ten years.
_MOST_TOKENS, _LONGEST_S = 10**8, 315_360_000
#: Beyond these the shape of a gamma process is told apart from nothing.
_CALMEST, _BURSTIEST = 10.0, 0.05


class NobodyCameError(LoadgenError):
    """There is no request in what was asked for."""


@dataclass(frozen=True, slots=True)
class Observed:
    """All arrivals of a window, in their order, `at_s` from its start. The answers of `guessed` were not over."""

    rows: tuple[Demand, ...]
    window_s: float
    guessed: int = 0
    cached_share: float = 0.0

    @classmethod
    def of(cls, document: Mapping[str, Any], within_s: float | None = None) -> "Observed":
        """`within_s`: only the end of the window. Raises LoadgenError."""
        if document.get("schema") != SCHEMA:
            raise LoadgenError(f"observed traffic: not a {SCHEMA} document: {document.get('schema')!r}")
        if "rows" not in document:
            raise LoadgenError("observed traffic: it has no rows; ask with rows=1, or use tandem traffic -o FILE")
        try:
            window_s = float(document["window_s"])
            if not 0 <= window_s <= _LONGEST_S:
                raise ValueError(f"a window of {window_s:g} s")
            window_s = min(window_s, within_s or math.inf)
            columns = list(document["columns"])
            read = [dict(zip(columns, row, strict=True)) for row in document["rows"]]
            kept = [row for row in read if 0 <= row["age_s"] <= window_s]
            lengths = _lengths(kept)
            rows = tuple(_demand(row, window_s, lengths) for row in sorted(kept, key=lambda row: -row["age_s"]))
            guessed = sum(row["known"] != "done" for row in kept)
            prompts = sum(_count(row["prompt"]) for row in kept)
            cached = sum(_count(row["cached"]) for row in kept)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise LoadgenError(f"observed traffic: not as {SCHEMA} has it ({error})") from None
        if not rows:
            raise NobodyCameError("observed traffic: no request in it")
        return cls(rows, window_s, guessed, cached / prompts if prompts else 0.0)

    @property
    def rate_ps(self) -> float:
        return len(self.rows) / self.window_s if self.window_s > 0 else math.inf

    @property
    def burstiness(self) -> float:
        """The gamma shape whose gaps vary as much: 1 is Poisson, below 1 burstier. 1 where their error leaves that open."""
        gaps = np.diff([row.at_s or 0.0 for row in self.rows])
        if gaps.size < LEAST or gaps.mean() <= 0:
            return 1.0
        squared = float(gaps.var(ddof=1) / gaps.mean() ** 2)
        # of exponential gaps the squared variation has a deviation of about sqrt(8 / n)
        if abs(squared - 1) <= 2 * math.sqrt(8 / gaps.size):
            return 1.0
        return max(_BURSTIEST, 1 / max(squared, 1 / _CALMEST))

    def workload(self) -> Mix:
        """Drawn in a new order for each seed. Raises LoadgenError where there are too few."""
        if len(self.rows) < LEAST:
            raise LoadgenError(
                f"observed traffic: {len(self.rows)} requests in {self.window_s:.0f} s are too few to plan by"
            )
        return Mix((Part(TraceWorkload.of("observed", self.rows, self.notes(), shuffle=True)),))

    def notes(self) -> list[str]:
        said = [
            f"observed: {len(self.rows)} requests in {self.window_s:.0f} s, {self.rate_ps:.3g}/s, burstiness {self.burstiness:.2g}"
        ]
        if self.guessed:
            said.append(
                f"{self.guessed} answers that had not ended by themselves are as long as others that had come as far"
            )
        if any(row.prefix for row in self.rows):
            said.append(
                f"{self.cached_share:.1%} of the prompt tokens were cached; they are taken as one beginning that prompts share"
            )
        return said


def _count(tokens: Any) -> int:
    """Each is made into that many things later on."""
    count = int(tokens)
    if not 0 <= count <= _MOST_TOKENS:
        raise ValueError(f"{tokens} tokens")
    return count


def _lengths(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Of the answers that are over, by class, the shortest first."""
    found: dict[str, list[int]] = {}
    for row in rows:
        if row["known"] == "done":
            found.setdefault(str(row["class"]), []).append(_count(row["output"]))
    return {name: sorted(lengths) for name, lengths in found.items()}


def _output(row: Mapping[str, Any], lengths: Mapping[str, Sequence[int]]) -> int:
    """Of an answer that is not over, one of those of its class that got longer than it is now; which one, its age says: evenly,
    and the same each time. What the gateway expected is older than a change may be, so it counts where there are few."""
    came = _count(row["output"])
    if row["known"] == "done":
        return came
    known = lengths.get(str(row["class"]), [])
    longer = known[bisect_right(known, came) :]
    if len(longer) < _FEW:
        return max(came, _count(row["expected"]))
    return longer[int(float(row["age_s"]) * _SCATTER % 1 * len(longer))]


def _demand(row: Mapping[str, Any], window_s: float, lengths: Mapping[str, Sequence[int]]) -> Demand:
    """What was cached becomes the beginning of a prompt that all share: nobody has told whose it was."""
    prompt, output = max(1, _count(row["prompt"])), max(1, _output(row, lengths))
    blocks = min(_count(row["cached"]), prompt - 1) // _BLOCK_TOKENS
    return Demand(
        prompt,
        output,
        at_s=window_s - float(row["age_s"]),
        prefix=tuple(range(blocks)),
        block_tokens=_BLOCK_TOKENS,
        klass=str(row["class"]),
    )
