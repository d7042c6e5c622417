"""One layout of a table from a source: dense samples, made monotone, thinned to few knots."""

from collections.abc import Callable, Sequence

import numpy as np

from engine.simulated.cost.table import GridTimes, Layout, LengthTimes, MemoryUse, TokenTimes
from engine.simulated.cost.tabulate.source import Source, Split
from engine.simulated.cost.tabulate.thin import Floats, Ints, monotone, thin, thin_grid

LONGEST = 163_840
LARGEST_BATCH = 1024
#: Share of the step's time that interpolation may miss at any sample.
TOLERANCE = 0.002
#: Tighter for prompt attention by length, because chunks are priced by differences of it.
PROMPT_TOLERANCE = 0.0005
#: A short prompt on few cached tokens takes longer than on many (another kernel): most steps have many.
CONTEXT_LEAN = 0.6
_DIGITS = 6


def build_layout(source: Source, tp: int, ep: int, *, latent: bool) -> Layout:
    step = _sample(source.step_rest_s, _token_axis())
    decode = _sample(source.decode_rest_s, np.arange(1, LARGEST_BATCH + 1))
    prompt = _sample(source.prompt_attention_s, _token_axis())
    return Layout(
        tp=tp,
        ep=ep,
        step=_token_times(_token_axis(), step, _total_of(step, prompt), source.step_split),
        decode=_token_times(np.arange(1, LARGEST_BATCH + 1), decode, decode, source.decode_split),
        decode_attention=_decode_attention(source, decode),
        prompt=_length_times(_token_axis(), prompt, step + prompt, PROMPT_TOLERANCE),
        prompt_batched=_batched(source, step),
        prompt_context=_prompt_context(source, source.prompt_attention_s, CONTEXT_LEAN),
        prompt_context_batched=_prompt_context(source, lambda n, c: _added(source, n, c), 0.5),
        attention_with_step=latent,
        memory=_memory(source),
    )


def _token_axis() -> Ints:
    """Every number of tokens while kernels change in small steps, then both sides of every tile edge."""
    edges = np.arange(2048, 16_385, 64)
    far = np.unique(np.geomspace(16_385, LONGEST, 240).astype(np.int64))
    return np.unique(np.concatenate([np.arange(1, 2049), edges, edges[edges % 256 == 0] + 1, far]))


def _sample(measure: Callable[[int], float], axis: Sequence[int] | Ints) -> Floats:
    return monotone(np.array([measure(int(x)) for x in axis], dtype=np.float64))


def _total_of(step: Floats, prompt: Floats) -> Floats:
    """What an error in `step` is measured against: a step without the prompt's quadratic part."""
    scale: Floats = step + np.minimum(prompt, step)
    return scale


def _token_times(axis: Ints, total: Floats, scale: Floats, split: Callable[[int], Split]) -> TokenTimes:
    kept = thin(axis, total, scale, TOLERANCE)
    tokens = [int(axis[k]) for k in kept]
    parts = [split(count) for count in tokens]
    memory: list[float] = []
    collective: list[float] = []
    for k, part in zip(kept, parts, strict=True):
        # The parts follow the total where it was made monotone.
        memory.append(_round(part.memory_s * total[k] / part.total_s))
        collective.append(_round(part.collective_s * total[k] / part.total_s))
    return TokenTimes(tuple(tokens), tuple(_round(total[k]) for k in kept), tuple(memory), tuple(collective))


def _length_times(axis: Ints, values: Floats, scale: Floats, tolerance: float) -> LengthTimes:
    kept = thin(axis, values, scale, tolerance)
    return LengthTimes(tuple(int(axis[k]) for k in kept), tuple(_round(values[k]) for k in kept))


def _grid_times(rows: Ints, columns: Ints, values: Floats, scale: Floats, tolerance: float) -> GridTimes:
    kept_rows, kept_columns = thin_grid(rows, columns, values, scale, tolerance)
    return GridTimes(
        tuple(int(rows[k]) for k in kept_rows),
        tuple(int(columns[k]) for k in kept_columns),
        tuple(tuple(_round(values[i, j]) for j in kept_columns) for i in kept_rows),
    )


def _decode_attention(source: Source, rest: Floats) -> GridTimes:
    batches = np.unique(np.concatenate([np.arange(1, 257), np.arange(256, LARGEST_BATCH + 1, 16)]))
    contexts = np.unique(np.concatenate([[1], np.geomspace(16, LONGEST, 64).astype(np.int64)]))
    values = np.array([[source.decode_attention_s(int(b), int(c)) for c in contexts] for b in batches])
    values = monotone(values)
    return _grid_times(batches, contexts, values, values + rest[batches - 1][:, None], TOLERANCE)


def _prompt_context(source: Source, measure: Callable[[int, int], float], lean: float) -> GridTimes:
    """Prompts on top of cached tokens."""
    tokens = _coarse_tokens(192)
    contexts = np.unique(np.concatenate([[1, 8, 16, 32], np.geomspace(64, LONGEST, 48).astype(np.int64)]))
    values = monotone(np.array([[measure(int(n), int(c)) for c in contexts] for n in tokens]), lean)
    rest = np.array([source.step_rest_s(int(n)) for n in tokens])
    return _grid_times(tokens, contexts, values, values + rest[:, None], 2 * TOLERANCE)


def _coarse_tokens(points: int) -> Ints:
    edges = np.array([128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16_384])
    spread = np.geomspace(1, LONGEST, points).astype(np.int64)
    return np.unique(np.concatenate([np.arange(1, 33), spread, edges, edges + 1]))


def _batched(source: Source, step: Floats) -> LengthTimes:
    """What one more prompt of a length adds to the attention of a step that has many."""
    lengths = _coarse_tokens(192)
    values = _sample(lambda length: _added(source, length, 0), lengths)
    scale = np.interp(lengths, _token_axis(), step)
    return _length_times(lengths, values, scale, PROMPT_TOLERANCE)


def _added(source: Source, tokens: int, context: int) -> float:
    # As many as the kernels were measured with: beyond, the source extrapolates steeply.
    many = max(2, min(16, 32_768 // tokens, LONGEST // (tokens + context)))
    few = many // 2
    more = source.prompt_attention_s(tokens, context, many) - source.prompt_attention_s(tokens, context, few)
    return max(more, 0.0) / (many - few)


def _memory(source: Source) -> MemoryUse:
    many, one = source.memory(16_384), source.memory(1)
    return MemoryUse(
        weights_bytes=int(one["weights_bytes"]),
        activation_bytes_per_token=many["activations_bytes"] / 16_384,
        activation_floor_bytes=int(one["activations_bytes"]),
        comm_bytes=int(one["comm_overhead_bytes"]),
        runtime_bytes=int(one["runtime_overhead_bytes"]),
    )


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
