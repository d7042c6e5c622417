"""Results with known arithmetic."""

from array import array
from collections.abc import Sequence

from loadgen.result import Ending, Result


def result(
    index: int = 0,
    *,
    at: float = 0.0,
    first: float | None = 0.1,
    gaps: Sequence[float] = (),
    tokens: Sequence[int] | None = None,
    tail: float = 0.0,
    lag: float = 0.0,
    ending: Ending = Ending.COMPLETED,
    reason: str = "",
    klass: str = "",
    tenant: str = "",
    planned_output: int | None = None,
    end_after: float | None = None,
) -> Result:
    """Content at `at + first`, then after each gap; the stream ends `tail` after the last chunk."""
    times = [] if first is None else [at + first]
    for gap in gaps:
        times.append(times[-1] + gap)
    counts = list(tokens) if tokens is not None else [1] * len(times)
    total = sum(counts)
    end = at + end_after if end_after is not None else (times[-1] if times else at) + tail
    return Result(
        index=index,
        intended_s=at,
        sent_s=at + lag,
        end_s=end,
        ending=ending,
        reason=reason,
        first_s=times[0] if times else None,
        planned_prompt_tokens=10,
        planned_output_tokens=total if planned_output is None else planned_output,
        prompt_tokens=10,
        output_tokens=total,
        chunk_s=array("d", times),
        chunk_tokens=array("L", counts),
        klass=klass,
        tenant=tenant,
    )
