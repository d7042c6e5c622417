"""From measured steps of a live engine to a table in the same format as the built-in ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from engine.simulated.cost.step_cost import StepCost
from engine.simulated.cost.table import Facts, GridTimes, Layout, LengthTimes, Table, TokenTimes
from engine.simulated.cost.table_cost import TableCost


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """Seconds of one step: `batch` decodes at the mean context `context`, and a chunk when `new` is not 0."""

    s: float
    batch: int = 0
    context: int = 0
    new: int = 0
    before: int = 0

    def predicted_s(self, cost: StepCost) -> float:
        return cost.step_s(self.batch, self.batch * self.context, [(self.new, self.before)] if self.new else [])

    @property
    def pairs(self) -> float:
        """Pairs of tokens that the chunk's attention looks at."""
        return self.new * (self.before + self.new / 2)


class TooFewPointsError(ValueError):
    """The measurements do not determine a table."""


def fit(
    steps: Sequence[MeasuredStep],
    facts: Facts,
    *,
    tp: int,
    device: str,
    links: Mapping[str, tuple[float, float]],
    sharing: Mapping[str, float] | None = None,
) -> Table:
    """Separates attention from the rest by how time grows with context and length.

    The table's `fit` has the median errors left. Mixed steps are not fitted: their error tells how well the
    parts predict what they were not made from.
    """
    points = _medians(steps)
    groups = {
        "decode": [step for step in points if not step.new],
        "prefill": [step for step in points if step.new and not step.batch],
        "mixed": [step for step in points if step.new and step.batch],
    }
    decode, decode_attention = _fit_decode(groups["decode"])
    step, prompt, prompt_context = _fit_prompts(groups["prefill"])
    layout = Layout(
        tp=tp,
        ep=1,
        step=step,
        decode=decode,
        decode_attention=decode_attention,
        prompt=prompt,
        prompt_batched=prompt,
        prompt_context=prompt_context,
        prompt_context_batched=prompt_context,
    )
    cost = TableCost(layout)
    errors = {
        f"{kind}_median_error": median(abs(step.predicted_s(cost) / step.s - 1) for step in group)
        for kind, group in groups.items()
        if group
    }
    source = {"name": "tandem profile", "points": str(len(steps))}
    table = Table(
        device, facts.model, source, (layout,), dict(links), facts=facts, fit=errors, sharing=dict(sharing or {})
    )
    return replace(table, valid_for=table.validity)


def _medians(steps: Sequence[MeasuredStep]) -> list[MeasuredStep]:
    """One step for every point, with the median of its repetitions: a busy machine disturbs some of them.

    Repetitions may differ by a few tokens of context, because sequences do not start at the same step.
    """
    points: dict[tuple[int, ...], list[MeasuredStep]] = {}
    for step in steps:
        points.setdefault((step.batch, round(step.context / 16), step.new, step.before), []).append(step)
    return [
        replace(same[0], s=median(step.s for step in same), context=round(median(step.context for step in same)))
        for same in points.values()
    ]


def _fit_decode(steps: Sequence[MeasuredStep]) -> tuple[TokenTimes, GridTimes]:
    """For every batch size a line over context; its start is the step without attention."""
    batches = sorted({step.batch for step in steps})
    contexts = sorted({step.context for step in steps})
    if not batches or len(contexts) < 2:
        raise TooFewPointsError("decode needs at least one batch size at two contexts")
    starts: list[float] = []
    slopes: list[float] = []
    for batch in batches:
        own = [step for step in steps if step.batch == batch]
        if len({step.context for step in own}) > 1:
            start, slope = non_negative([[1.0, step.context] for step in own], [step.s for step in own])
        else:
            # One context tells no slope: attention is taken to grow with the batch.
            slope = slopes[-1] * batch / batches[len(slopes) - 1] if slopes else 0.0
            start = median(max(step.s - slope * step.context, 0.0) for step in own)
        starts.append(start)
        slopes.append(slope)
    columns = (1, max(2, contexts[-1]))
    values = tuple(tuple(slope * column for column in columns) for slope in _rising(slopes))
    return _token_times(batches, _rising(starts)), GridTimes(tuple(batches), columns, values)


def _fit_prompts(steps: Sequence[MeasuredStep]) -> tuple[TokenTimes, LengthTimes, GridTimes]:
    """Attention is what grows with token pairs; the rest stays as measured, length by length."""
    lengths = sorted({step.new for step in steps if not step.before})
    if len(lengths) < 3:
        raise TooFewPointsError("prefill needs at least three lengths without cached tokens")
    pair = non_negative([[1.0, step.new, step.pairs] for step in steps], [step.s for step in steps])[2]
    bare = [
        median(step.s - pair * step.pairs for step in steps if step.new == length and not step.before)
        for length in lengths
    ]
    knots = _knots(lengths[-1])
    longest = max(max(step.before for step in steps), lengths[-1])
    return (
        _token_times(lengths, _rising([max(seconds, 0.0) for seconds in bare])),
        LengthTimes(knots, tuple(pair * length * length / 2 for length in knots)),
        GridTimes(
            knots,
            (1, longest + 1),
            tuple(tuple(pair * new * (before + new / 2) for before in (1, longest + 1)) for new in knots),
        ),
    )


def _knots(longest: int) -> tuple[int, ...]:
    """Close enough for a square to look straight between them, and as far again beyond the longest."""
    knots = [1]
    while knots[-1] < 8 * longest:
        knots.append(max(knots[-1] + 1, round(knots[-1] * 1.1)))
    return tuple(knots)


def _token_times(tokens: Sequence[int], seconds: Sequence[float]) -> TokenTimes:
    """A measured engine does not say what its steps are bound by."""
    unknown = (0.0,) * len(tokens)
    return TokenTimes(tuple(tokens), tuple(seconds), unknown, unknown)


def non_negative(features: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Least squares of the relative error; a factor that would be negative is left out."""
    weights = 1 / np.array(seconds)
    matrix = np.array(features) * weights[:, None]
    active = list(range(matrix.shape[1]))
    factors = np.zeros(matrix.shape[1])
    while active:
        # Scaled columns keep the factors of a token and of a million token pairs comparable.
        scale = np.abs(matrix[:, active]).max(axis=0)
        solution = np.linalg.lstsq(matrix[:, active] / scale, np.ones(len(weights)), rcond=None)[0] / scale
        if (solution >= 0).all():
            factors[active] = solution
            break
        active.pop(int((solution * scale).argmin()))
    return [float(factor) for factor in factors]


def _rising(values: Sequence[float]) -> list[float]:
    """Pools neighbours that fall, so that noise never makes more work cheaper."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (first, count), (second, other) = pools[-2:]
            pools[-2:] = [((first * count + second * other) / (count + other), count + other)]
    return [mean for mean, count in pools for _ in range(count)]
