"""How much slower or faster a fleet is than its table says, as a few factors, and the table that follows from them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from engine.simulated.cost.table import GridTimes, Layout, LengthTimes, Table, TokenTimes
from loadgen.recalibrate.components import Components

#: The part of a request that tells of each factor.
_TELLS = {"prefill": "prefill", "decode": "tpot", "link": "transfer"}
#: What is compared to say how good a table is.
COMPARED = ("ttft", "tpot", "e2el", "prefill", "transfer")
#: Good enough: measurements differ by more from one run to the next.
_CLOSE = 0.01
#: Queues answer a factor by more than itself, so steps are bounded and few.
_MOST_STEP, _ROUNDS = 4.0, 6
#: Shorter than this, a part is the clock's and the loop's, not the engine's.
_LEAST_MS = 0.5


@dataclass(frozen=True, slots=True)
class Factors:
    """On seconds: of steps with prompts, of steps that only decode, of moving KV."""

    prefill: float = 1.0
    decode: float = 1.0
    link: float = 1.0


@dataclass(frozen=True, slots=True)
class Fitted:
    """Run by run: predicted `before` by the table as it is, and `predicted` with `factors`. Errors are medians over runs
    and parts, as shares."""

    before: tuple[Components, ...]
    factors: Factors
    predicted: tuple[Components, ...]
    error_before: float
    error: float


def fit(observed: Sequence[Components], predict: Callable[[Factors], Sequence[Components]]) -> Fitted:
    """Moves each factor by what is seen of it, predicts again, and keeps the best."""
    factors = Factors()
    predicted = before = tuple(predict(factors))
    error = error_of(observed, before)
    best = Fitted(before, factors, before, error, error)
    for _ in range(_ROUNDS):
        moves = {name: _move(observed, predicted, part) for name, part in _TELLS.items()}
        if all(abs(math.log(move)) < _CLOSE for move in moves.values()):
            break
        factors = Factors(**{name: getattr(factors, name) * move for name, move in moves.items()})
        predicted = tuple(predict(factors))
        error = error_of(observed, predicted)
        if error < best.error:
            best = replace(best, factors=factors, predicted=predicted, error=error)
    return best


def error_of(observed: Sequence[Components], predicted: Sequence[Components]) -> float:
    """Median over runs and parts of |predicted / observed - 1|, of medians."""
    errors = [
        abs(math.exp(-ratio) - 1)
        for part in COMPARED
        for ratio in _log_ratios(observed, predicted, part)
    ]  # fmt: skip
    return median(errors) if errors else 0.0


def _move(observed: Sequence[Components], predicted: Sequence[Components], part: str) -> float:
    ratios = _log_ratios(observed, predicted, part)
    return min(_MOST_STEP, max(1 / _MOST_STEP, math.exp(median(ratios)))) if ratios else 1.0


def _log_ratios(observed: Sequence[Components], predicted: Sequence[Components], part: str) -> list[float]:
    """Of observed to predicted; where both have the part and it is long enough to mean something."""
    pairs = ((o.p50_ms(part), p.p50_ms(part)) for o, p in zip(observed, predicted, strict=True))
    return [math.log(o / p) for o, p in pairs if o is not None and p is not None and min(o, p) >= _LEAST_MS]


def scaled(table: Table, factors: Factors) -> Table:
    """All layouts alike: what makes a fleet slower than its kernels is mostly not in the kernels."""
    rate = 1 / factors.link
    links = {name: (per_s * rate, latency_s * factors.link) for name, (per_s, latency_s) in table.links.items()}
    return replace(table, layouts=tuple(_scaled(layout, factors) for layout in table.layouts), links=links)


def _scaled(layout: Layout, factors: Factors) -> Layout:
    return replace(
        layout,
        step=_token_times(layout.step, factors.prefill),
        decode=_token_times(layout.decode, factors.decode),
        decode_attention=_grid(layout.decode_attention, factors.decode),
        prompt=_lengths(layout.prompt, factors.prefill),
        prompt_batched=_lengths(layout.prompt_batched, factors.prefill),
        prompt_context=_grid(layout.prompt_context, factors.prefill),
        prompt_context_batched=_grid(layout.prompt_context_batched, factors.prefill),
    )


def _token_times(times: TokenTimes, factor: float) -> TokenTimes:
    parts = (tuple(s * factor for s in part) for part in (times.total_s, times.memory_s, times.collective_s))
    return TokenTimes(times.tokens, *parts)


def _lengths(times: LengthTimes, factor: float) -> LengthTimes:
    return LengthTimes(times.tokens, tuple(s * factor for s in times.s))


def _grid(grid: GridTimes, factor: float) -> GridTimes:
    return GridTimes(grid.rows, grid.columns, tuple(tuple(s * factor for s in line) for line in grid.s))
