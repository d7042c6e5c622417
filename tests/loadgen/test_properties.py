"""What holds for any answers and any results."""

from array import array

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client.timeline import Timeline
from loadgen.measure.measures import Setting, measure
from loadgen.result import Ending, Result
from loadgen.slo.policy import build_policy

results = st.lists(
    st.builds(
        lambda at, first, gaps, ending: (at, first, gaps, ending),
        st.floats(0, 100),
        st.floats(0, 5),
        st.lists(st.floats(0, 2), max_size=8),
        st.sampled_from(Ending),
    ),
    max_size=40,
)


def _result(index: int, at: float, first: float, gaps: list[float], ending: Ending) -> Result:
    times = [at + first + sum(gaps[:i]) for i in range(len(gaps) + 1)]
    tokens = ending is Ending.COMPLETED
    return Result(
        index,
        at,
        at,
        times[-1],
        ending,
        first_s=times[0] if tokens else None,
        output_tokens=len(times) if tokens else 0,
        chunk_s=array("d", times if tokens else []),
        chunk_tokens=array("L", [1] * len(times) if tokens else []),
    )


@given(results, st.floats(1, 5000), st.floats(1, 2000))
def test_the_five_classes_always_add_up_and_looser_limits_never_hurt(
    rows: list[tuple[float, float, list[float], Ending]], ttft: float, tpot: float
) -> None:
    run = [_result(i, *row) for i, row in enumerate(rows)]
    policy = build_policy([f"ttft:{ttft} tpot:{tpot}"])
    strict, loose = (measure(run, Setting(p, window_s=100)) for p in (policy, policy.scaled(2)))
    for m in (strict, loose):
        assert sum(m.overall.counts.values()) == m.overall.offered == len(run) - m.cancelled
        assert sum(g.offered for g in m.by_bucket.values()) == m.overall.offered
    assert loose.overall.counts["good"] >= strict.overall.counts["good"]
    interval = strict.overall.attainment_95
    if interval is not None and strict.overall.attainment is not None:
        assert 0 <= interval.low <= strict.overall.attainment + 1e-9
        assert strict.overall.attainment - 1e-9 <= interval.high <= 1


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=30),
    st.booleans(),
    st.integers(1, 7),
    st.integers(0, 40),
)
def test_tokens_of_chunks_always_add_up_to_the_total(
    chunks: list[tuple[int, int]], running: bool, cut: int, extra: int
) -> None:
    counted, data = 0, b""
    for size, fresh in chunks:
        counted += fresh
        chunk = {"choices": [{"text": "x" * size, "finish_reason": None}]}
        data += (
            b"data: " + orjson.dumps(chunk | ({"usage": {"completion_tokens": counted}} if running else {})) + b"\n\n"
        )
    total = counted + extra
    data += b"data: " + orjson.dumps({"choices": [], "usage": {"completion_tokens": total}}) + b"\n\ndata: [DONE]\n\n"
    timeline = Timeline()
    timeline.head(200, {"content-type": "text/event-stream"}, 0.0)
    for i in range(0, len(data), cut):
        timeline.body(data[i : i + cut], float(i))
    timeline.end(float(len(data)))
    tokens = timeline.tokens()
    assert timeline.done
    assert len(tokens.chunk_s) == len(tokens.chunk_tokens)
    assert sum(tokens.chunk_tokens) == tokens.total
    assert tokens.total >= total or not total
    assert list(tokens.chunk_s) == sorted(tokens.chunk_s)
    assert min(tokens.chunk_tokens) >= 1


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5)), min_size=1, max_size=20))
def test_token_gaps_span_the_stream(parts: list[tuple[float, int]]) -> None:
    times = np.cumsum([gap for gap, _ in parts]).tolist()
    r = Result(
        0,
        0.0,
        0.0,
        times[-1],
        Ending.COMPLETED,
        chunk_s=array("d", times),
        chunk_tokens=array("L", [n for _, n in parts]),
    )
    gaps = r.token_gaps_s()
    assert gaps.size == sum(n for _, n in parts) - 1
    assert abs(gaps.sum() - (times[-1] - times[0])) < 1e-9
