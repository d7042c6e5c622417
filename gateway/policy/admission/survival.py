"""How long answers live: survival tables of many requests, looked up in one go. Pure.

A table is the output length at fixed quantile levels; between them the survival is a straight line. Beyond the highest
level an answer that is still running is taken to have a tail of power two (it lasts twice as long with chance 1/4) up to
its limit (`max_tokens`, the window). Where the two highest lengths are equal they are the limit.
"""

from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.policy.estimate.estimate import END, LEVELS, Floats

#: Rows are laid end to end for one look-up; no answer is longer than this.
_ROW_TOKENS = float(1 << 24)
#: What is left of an answer at its limit: nothing, but a ratio of it must exist should the limit be wrong.
_NOTHING = 1e-9
#: For a length of 0: less than any token, but a ratio to it exists.
_TINY = 1e-100
#: Survival before, at and after `LEVELS`. The last of them stands for the 0.9999 quantile.
_SURVIVAL: Floats = np.concatenate(((1.0,), np.maximum(1.0 - LEVELS, END), (END,)))


class Lengths(Protocol):
    """The part of an estimate that a forecast needs: output tokens at `LEVELS`, ascending."""

    @property
    def lengths(self) -> NDArray[np.integer]: ...


@cache
def _rows(capacity: int) -> tuple[Floats, Floats]:
    """What all tables of so many rows have in common: where each row begins, and the survival at its points."""
    return np.arange(capacity, dtype=np.float64)[:, None] * _ROW_TOKENS, np.tile(_SURVIVAL, capacity)


class Table:
    """Survival of N answers; `lengths` is N x levels, `limits` N x 1: no answer is longer than its limit."""

    __slots__ = ("_flat_survival", "_flat_tokens", "_last", "_offsets", "limits")

    def __init__(self, lengths: Floats, limits: Floats) -> None:
        rows = len(lengths)
        offsets, survival = _rows(1 << max(0, rows - 1).bit_length())
        self._offsets = offsets[:rows]
        last = lengths[:, -1:]
        self._last = np.maximum(last, _TINY)
        self.limits = np.where(last <= lengths[:, -2:-1], np.minimum(last, limits), limits)
        # A row's curve goes on flat to both sides, far enough that no look-up strays into the next row.
        tokens = np.empty((rows, len(_SURVIVAL)))
        tokens[:, 0], tokens[:, 1:-1], tokens[:, -1] = -_ROW_TOKENS / 2 + 1, lengths, _ROW_TOKENS / 2 - 1
        tokens += self._offsets
        self._flat_tokens = tokens.ravel()
        self._flat_survival = survival[: tokens.size]

    def beyond(self, tokens: Floats) -> Floats:
        """P(length > tokens), N x K; 1 for what has not begun (negative tokens). Never 0, so that ratios exist."""
        chance: Floats = np.interp(tokens + self._offsets, self._flat_tokens, self._flat_survival)
        ratio = np.maximum(tokens, self._last)
        np.divide(self._last, ratio, out=ratio)  # 1 up to the last length
        ratio *= ratio
        chance *= ratio
        np.multiply(ratio, _NOTHING, out=chance, where=tokens >= self.limits)
        return chance

    def given(self, tokens: Floats, generated: Floats, *stretches: Floats) -> list[Floats]:
        """P(length > tokens | length > generated), N x K, `generated` N x 1; 1 up to `generated`.

        One for each stretch, N x 1: as if every length were that many times the table's, but for limits, which hold.
        """
        # All in one look-up: for a few requests it is the calls that cost, not the numbers.
        asked = [tokens / stretch for stretch in stretches] + [generated / stretch for stretch in stretches]
        beyond = self.beyond(np.concatenate(asked, axis=1))
        width = tokens.shape[1]
        begun = tokens <= generated
        chances = []
        for at, stretch in enumerate(stretches):
            lived = len(stretches) * width + at
            chance = beyond[:, at * width : (at + 1) * width] / beyond[:, lived : lived + 1]
            if (stretch != 1.0).any():
                np.copyto(chance, _NOTHING, where=(tokens >= self.limits) & ~begun)
            np.copyto(chance, 1.0, where=begun)
            chances.append(np.minimum(chance, 1.0, out=chance))
        return chances


def lived(lengths: Floats, limit: float, tokens: float, generated: float) -> float:
    """P(length > tokens | length > generated) of one answer, as a `Table` of it has it. `limit` is `limit_of` it."""
    return _beyond(lengths, limit, tokens) / _beyond(lengths, limit, generated)


def outlived(lengths: Floats, limit: float, tokens: Floats, generated: float, *stretches: float) -> Floats:
    """The same at many tokens, ascending, and as if every length were so many times as long: stretches x K."""
    last = max(float(lengths[-1]), _TINY)
    asked = tokens / np.array(stretches)[:, None]
    chances: Floats = np.interp(asked, lengths, _SURVIVAL[1:-1])
    if limit > last or min(stretches) < 1.0:  # else whatever is asked for beyond the last length is beyond the limit
        ratio = last / np.maximum(asked, last)
        ratio *= ratio
        chances *= ratio
    if generated > 0.0 or lengths[0] <= 0.0:
        chances /= np.array([_beyond(lengths, limit, generated / stretch) for stretch in stretches])[:, None]
        np.minimum(chances, 1.0, out=chances)
    chances[:, tokens.searchsorted(limit) :] = _NOTHING
    chances[:, : tokens.searchsorted(generated, side="right")] = 1.0
    return chances


def _beyond(lengths: Floats, limit: float, tokens: float) -> float:
    last = max(float(lengths[-1]), _TINY)
    ratio: float = (last / max(tokens, last)) ** 2
    return ratio * _NOTHING if tokens >= limit else ratio * float(np.interp(tokens, lengths, _SURVIVAL[1:-1]))


def limit_of(lengths: Floats, limit: float) -> float:
    """The limit of one answer, as a `Table` of it has it."""
    last = float(lengths[-1])
    return min(last, limit) if last <= lengths[-2] else limit


def grid(horizon_tokens: int = 131_072, first_tokens: int = 16, ratio: float = 1.2) -> Floats:
    """Future steps at which a forecast is made: now, then ever further apart. 52 points as it stands."""
    count = int(np.ceil(np.log(horizon_tokens / first_tokens) / np.log(ratio))) + 1
    return np.concatenate(((0.0,), np.unique(np.round(first_tokens * ratio ** np.arange(count)))))
