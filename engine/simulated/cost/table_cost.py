"""The cost of a step from a table. docs/cost-model.md gives the formulas and why they are these."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.simulated.cost.grid import Curve, Surface, convex_below
from engine.simulated.cost.step_cost import PrefillChunk, StepTime
from engine.simulated.cost.table import Layout, LengthTimes, TokenTimes

#: Rows kept for batch sizes seen; a row is some 30 floats.
_ROWS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Hops:
    """What exchange between GPUs costs beside what the table has: passing a step's activations from one pipeline stage to the
    next, all hops together, and sums over a slower link than the table's."""

    latency_s: float = 0.0
    token_s: float = 0.0

    def at(self, tokens: int) -> float:
        return self.latency_s + tokens * self.token_s if tokens else 0.0


class TableCost:
    """A StepCost over one layout. With pipeline stages a step is one pass through all of them."""

    def __init__(self, layout: Layout, hops: Hops | None = None) -> None:
        self._hops = hops or Hops()
        self._step = _curve(layout.step)
        self._decode = _curve(layout.decode)
        self._parts = {True: _Parts(layout.step), False: _Parts(layout.decode)}
        grid = layout.decode_attention
        self._decode_attention = Surface(grid.rows, grid.columns, grid.s)
        grid = layout.prompt_context
        self._prompt_context = Surface(grid.rows, grid.columns, grid.s)
        grid = layout.prompt_context_batched
        self._prompt_context_batched = Surface(grid.rows, grid.columns, grid.s)
        self._prompt = _length_curve(layout.prompt)
        self._batched = _length_curve(layout.prompt_batched)
        self._convex_prompt = convex_below(self._prompt)
        self._with_step = layout.attention_with_step
        self._rows: dict[int, tuple[float, Curve, float]] = {}

    def step_s(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> float:
        if not prefill_chunks:
            if decode_batch <= 0:
                return 0.0
            base, attention, _ = self._row(decode_batch)
            return base + attention.at(decode_context_tokens)
        if decode_batch <= 0:
            return self._prefill_s(prefill_chunks)
        return self._mixed_s(decode_batch, decode_context_tokens, prefill_chunks)

    def breakdown(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> StepTime:
        total = self.step_s(decode_batch, decode_context_tokens, prefill_chunks)
        tokens = max(decode_batch, 0) + sum(new for new, _ in prefill_chunks)
        if total == 0.0 or not tokens:
            return StepTime(0.0, 0.0, 0.0)
        parts = self._parts[bool(prefill_chunks)]
        collective = parts.collective.at(tokens) + self._hops.at(tokens)
        memory = parts.memory.at(tokens)
        if decode_batch > 0:
            _, attention, least = self._row(decode_batch)
            kept = least if prefill_chunks and self._with_step else 0.0
            memory += attention.at(decode_context_tokens) - kept
        collective = min(collective, total)
        memory = min(memory, total - collective)
        return StepTime(total - memory - collective, memory, collective)

    def decode_run_s(self, batch: int, context_tokens: int, steps: int) -> float:
        if batch <= 0 or steps <= 0:
            return 0.0
        base, attention, _ = self._row(batch)
        return attention.run(context_tokens, batch, steps, base)

    def decode_steps_within(self, batch: int, context_tokens: int, seconds: float) -> int:
        if batch <= 0 or seconds <= 0.0:
            return 0
        base, attention, _ = self._row(batch)
        return attention.run_within(context_tokens, batch, seconds, base, 1 << 40)

    def _row(self, batch: int) -> tuple[float, Curve, float]:
        """For a batch size: time without attention, attention over total context, and its least value."""
        row = self._rows.get(batch)
        if row is None:
            if len(self._rows) >= _ROWS_KEPT:
                self._rows.clear()
            curve = self._decode_attention.curve(batch, batch)
            row = self._rows[batch] = (self._decode.at(batch) + self._hops.at(batch), curve, curve.ys[0])
        return row

    def _prefill_s(self, chunks: Sequence[PrefillChunk]) -> float:
        """Prompts alone. One kernel serves all: the costliest pays in full, the others what they add to a full step."""
        tokens, added, largest = 0, 0.0, 0.0
        for new, before in chunks:
            tokens += new
            alone = self._prompt_context.at(new, before) if before > 0 else self._prompt.at(new)
            if len(chunks) == 1:
                return self._step.at(new) + alone + self._hops.at(new)
            more = self._prompt_context_batched.at(new, before) if before > 0 else self._batched.at(new)
            added += more
            largest = max(largest, alone - more)
        return self._step.at(tokens) + added + largest + self._hops.at(tokens)

    def _mixed_s(self, batch: int, context_tokens: int, chunks: Sequence[PrefillChunk]) -> float:
        """Prompts beside decodes, never less than the decodes alone."""
        base, attention, least = self._row(batch)
        tokens = batch
        for new, _ in chunks:
            tokens += new
        prompts = self._block(tokens, chunks) - least if self._with_step else self._beside(chunks)
        step = self._step.at(tokens) + self._hops.at(tokens) + prompts
        return (step if step > base else base) + attention.at(context_tokens)

    def _beside(self, chunks: Sequence[PrefillChunk]) -> float:
        """Attention of chunks in a mixed step: a prompt's chunks together cost what the whole prompt costs."""
        added = largest = more = 0.0
        size = -1
        for new, before in chunks:
            if before > 0:
                added += self._prompt.at(before + new) - self._prompt.at(before)
                continue
            if new != size:  # the bound asks for many equal pieces in a row
                size, more = new, self._batched.at(new)
                largest = max(largest, self._prompt.at(new) - more)
            added += more
        return added + largest

    def _block(self, tokens: int, chunks: Sequence[PrefillChunk]) -> float:
        """Attention known as one block over all tokens of the step, plus what earlier context adds to chunks.

        That addition comes from a convex curve, so that it grows with both context and chunk.
        """
        total, convex = self._prompt.at(tokens), self._convex_prompt.at
        for new, before in chunks:
            if before > 0:
                total += convex(before + new) - convex(before) - convex(new) + convex(0)
        return total


class _Parts:
    """The share of the token-dependent time that is memory traffic and exchange between ranks."""

    __slots__ = ("collective", "memory")

    def __init__(self, times: TokenTimes) -> None:
        zeros = [0.0] * len(times.tokens)
        self.memory = Curve(times.tokens, times.memory_s or zeros)
        self.collective = Curve(times.tokens, times.collective_s or zeros)


def _curve(times: TokenTimes) -> Curve:
    return Curve(times.tokens, times.total_s)


def _length_curve(times: LengthTimes) -> Curve:
    return Curve(times.tokens, times.s)
