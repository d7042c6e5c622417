"""A measured table of an engine whose steps take so many times as long."""

from dataclasses import replace

from engine.simulated.cost.table import GridTimes, Layout, TokenTimes


def paced(layout: Layout, *, prefill: float, decode: float) -> Layout:
    """The same table with steps so many times as long."""
    return replace(
        layout,
        step=_longer(layout.step, prefill),
        prompt=replace(layout.prompt, s=_times(layout.prompt.s, prefill)),
        prompt_batched=replace(layout.prompt_batched, s=_times(layout.prompt_batched.s, prefill)),
        prompt_context=_grid(layout.prompt_context, prefill),
        prompt_context_batched=_grid(layout.prompt_context_batched, prefill),
        decode=_longer(layout.decode, decode),
        decode_attention=_grid(layout.decode_attention, decode),
    )


def _longer(times: TokenTimes, factor: float) -> TokenTimes:
    parts = (times.total_s, times.memory_s, times.collective_s)
    return TokenTimes(times.tokens, *(_times(part, factor) for part in parts))


def _grid(grid: GridTimes, factor: float) -> GridTimes:
    return replace(grid, s=tuple(_times(line, factor) for line in grid.s))


def _times(values: tuple[float, ...], factor: float) -> tuple[float, ...]:
    return tuple(value * factor for value in values)
