"""Families against their sources' figures, sessions, mixes, shapes, storms and schedules."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from loadgen.arrivals.process import Arrivals, Kind
from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.schedule import Plan, Schedule, Sessions, build
from loadgen.workload.base import Workload
from loadgen.workload.describe import describe
from loadgen.workload.family import fixed, shipped
from loadgen.workload.fit import shared_blocks
from loadgen.workload.quantiles import QuantileTable
from loadgen.workload.sessions import SESSIONS
from loadgen.workload.spec import Catalogue
from loadgen.workload.trace import TraceWorkload

CATALOGUE = Catalogue()

#: mean, p50, p90, p95, p99, max of inputs and outputs, as computed from the complete source files.
SOURCES = {
    "azure-code": ((2048, 1469, 5187, 7303, 7436, 7437), (27.9, 13, 55, 90, 251, 1899)),
    "azure-conv": ((1155, 1020, 2734, 4083, 4142, 14050), (211, 129, 424, 451, 601, 1000)),
    "mooncake-like": ((12035, 6909, 27367, 39550, 85400, 126195), (343, 350, 597, 698, 1118, 2000)),
    "r1-production": ((1268, 208, 2092, None, 23423, None), (1527, 792, 3432, 5701, 12607, 32768)),
}


def _flat(workload: Workload, count: int, seed: int = 0) -> list[Demand]:
    return [d for chain in workload.draw(count, np.random.default_rng(seed)) for d in chain]


@pytest.mark.parametrize("name", SOURCES)
def test_tables_hold_the_source_figures(name: str) -> None:
    family = shipped()[name]
    for table, (mean, p50, p90, p95, p99, top) in zip(
        (family.input_tokens, family.output_tokens), SOURCES[name], strict=True
    ):
        assert table.mean == pytest.approx(mean, rel=0.02)
        for percentile, figure in ((50, p50), (90, p90), (95, p95), (99, p99), (100, top)):
            if figure is not None:
                assert table.at(percentile) == pytest.approx(figure, rel=0.005, abs=0.51)


@pytest.mark.parametrize("name", SOURCES)
def test_drawn_requests_follow_the_tables(name: str) -> None:
    family = shipped()[name]
    rows = _flat(family, 20000)
    for table, values in (
        (family.input_tokens, [d.prompt_tokens for d in rows]),
        (family.output_tokens, [d.output_tokens for d in rows]),
    ):
        for percentile in (10, 50, 90, 95, 99):
            # within four standard errors of the percentile's rank, so exact however steep the table is there
            error = 4 * 100 * np.sqrt(percentile / 100 * (1 - percentile / 100) / len(rows))
            low, high = table.at(max(0, percentile - error)), table.at(min(100, percentile + error))
            assert low - 1 <= np.percentile(values, percentile) <= high + 1
    assert describe(rows).rank_correlation == pytest.approx(family.rank_correlation, abs=0.03)


def test_natural_reasoning_has_the_two_published_shares() -> None:
    family = shipped()["natural-reasoning"]
    rows = _flat(family, 20000)
    assert np.mean([50 <= d.prompt_tokens <= 150 for d in rows]) == pytest.approx(0.77, abs=0.012)
    assert np.mean([d.output_tokens > 5000 for d in rows]) == pytest.approx(0.45, abs=0.012)
    assert family.output_tokens.share_above(5000) == pytest.approx(0.45, abs=0.002)
    assert max(d.output_tokens for d in rows) <= 32768


def test_r1_production_has_the_published_tail_shares() -> None:
    table = shipped()["r1-production"].output_tokens
    assert table.share_above(1000) == pytest.approx(0.432, abs=0.003)
    assert table.share_above(5000) == pytest.approx(0.061, abs=0.001)
    assert table.share_above(10000) == pytest.approx(0.0173, abs=0.001)
    assert table.at(99.9) == pytest.approx(20833, rel=0.005)


def test_mooncake_like_shares_blocks_as_the_trace_does() -> None:
    rows = _flat(shipped()["mooncake-like"], 12031)
    description = describe(rows)
    assert description.shared_block_share == pytest.approx(0.366, abs=0.03)
    assert all(len(d.prefix) == -(-d.prompt_tokens // 512) for d in rows)
    assert len({d.prefix[0] for d in rows}) == 1
    hits = shared_blocks(rows)
    assert np.mean([h > 1 for h in hits]) == pytest.approx(0.387, abs=0.03)


def test_every_family_names_source_and_licence() -> None:
    assert {"azure-code", "azure-conv", "mooncake-like", "natural-reasoning", "r1-production"} <= set(shipped())
    assert all(f.source and f.licence for f in shipped().values())


def test_fixed_lengths_are_fixed() -> None:
    assert {(d.prompt_tokens, d.output_tokens) for d in _flat(fixed(512, 128), 50)} == {(512, 128)}
    with pytest.raises(LoadgenError, match="at least 1"):
        fixed(0, 5)


def test_quantile_table_refuses_nonsense() -> None:
    for percentiles, values in (((0, 100), (5, 1)), ((0, 50), (1, 2)), ((0, 100), (1,))):
        with pytest.raises(ValueError, match="quantile table"):
            QuantileTable(percentiles, values)


@pytest.mark.parametrize("name", SESSIONS)
def test_session_turns_grow_one_stream_of_text(name: str) -> None:
    family = SESSIONS[name]
    chains = family.draw(200, np.random.default_rng(1))
    assert max(map(len, chains)) > 3
    for chain in chains:
        for before, after in pairwise(chain):
            assert after.turn == before.turn + 1
            assert after.prompt_tokens > before.total_tokens
            assert after.prefix[: len(before.prefix)] == before.prefix
            assert after.service_s == pytest.approx(before.output_tokens * family.nominal_tpot_s)
        assert all(d.total_tokens <= family.max_context for d in chain)
    own = [set(chain[0].prefix[family.system_tokens // 64 :]) for chain in chains]
    assert not own[0] & own[1], "sessions share the system prompt only"
    assert chains[0][0].prefix[: family.system_tokens // 64] == chains[1][0].prefix[: family.system_tokens // 64]


def _plan(*texts: str, rate: float = 5.0, seconds: float = 200, **more: object) -> Schedule:
    plan = Plan(CATALOGUE.mix(texts), Arrivals(Kind.POISSON, rate=rate), seed=7, duration_s=seconds)
    return build(replace(plan, **more))  # type: ignore[arg-type]  # keywords of several types in one dict


def test_schedule_is_fixed_by_its_seed() -> None:
    once, again, other = _plan("azure-conv"), _plan("azure-conv"), _plan("azure-conv", seed=8)
    assert once == again
    assert once.digest == again.digest != other.digest


def test_a_change_of_rate_keeps_the_requests() -> None:
    texts = ("azure-conv weight=2 class=chat", "mooncake-like class=long")
    slow, fast = _plan(*texts, rate=2), _plan(*texts, rate=8)
    pairs = list(zip(slow.requests, fast.requests, strict=False))
    assert len(pairs) > 300
    assert all(a.demand.output_tokens == b.demand.output_tokens for a, b in pairs[:300])
    assert all(a.demand.klass == b.demand.klass for a, b in pairs[:300])
    assert all(a.at_s == pytest.approx(4 * b.at_s) for a, b in pairs[:300])


@pytest.mark.slow
def test_rate_counts_requests_not_sessions() -> None:
    schedule = _plan("chat-sessions", rate=10, seconds=2000)
    started = [p for p in schedule.requests if p.demand.turn == 0]
    assert len(schedule.requests) / 2000 == pytest.approx(10, rel=0.1)
    assert len(started) / 2000 == pytest.approx(10 / SESSIONS["chat-sessions"].mean_turns, rel=0.1)


def test_fixed_sessions_have_absolute_times_and_paced_ones_wait_for_the_answer() -> None:
    fixed_times = _plan("chat-sessions", rate=3)
    assert all(p.after is None for p in fixed_times.requests)
    paced = _plan("chat-sessions", rate=3, sessions=Sessions.PACED)
    by_index = {p.index: p for p in paced.requests}
    followers = [p for p in paced.requests if p.demand.turn]
    assert followers
    for p in followers:
        assert p.after is not None
        before = by_index[p.after]
        assert before.demand.session == p.demand.session
        assert before.demand.turn == p.demand.turn - 1


def test_count_limits_the_schedule_and_sets_its_window() -> None:
    schedule = build(Plan(fixed(10, 10), Arrivals(Kind.CONSTANT, rate=4), count=100))
    assert len(schedule.requests) == 100
    assert schedule.window_s == pytest.approx(25)


def test_mix_keeps_weights_labels_and_apart_prefixes() -> None:
    schedule = _plan(
        "azure-conv weight=3 class=chat tenant=acme", "mooncake-like class=long tenants=4 patience=9", rate=20
    )
    rows = [p.demand for p in schedule.requests]
    assert np.mean([d.klass == "chat" for d in rows]) == pytest.approx(0.75, abs=0.03)
    assert {d.tenant for d in rows if d.klass == "chat"} == {"acme"}
    assert {d.tenant for d in rows if d.klass == "long"} == {f"tenant-{i}" for i in range(4)}
    assert {d.patience_s for d in rows if d.klass == "long"} == {9.0}
    twice = _plan("mooncake-like class=a", "mooncake-like class=b", rate=5)
    ids = {k: {i for p in twice.requests if p.demand.klass == k for i in p.demand.prefix} for k in "ab"}
    assert not ids["a"] & ids["b"]


def test_limits_drop_or_clip_and_say_so() -> None:
    dropped = CATALOGUE.mix(["mooncake-like max-total=8192"])
    assert max(d.total_tokens for d in _flat(dropped, 500)) <= 8192
    clipped = CATALOGUE.mix(["mooncake-like max-total=8192 on-long=clip"])
    rows = _flat(clipped, 500)
    assert max(d.total_tokens for d in rows) == 8192
    assert all(len(d.prefix) == -(-d.prompt_tokens // 512) for d in rows)
    assert any("8192" in note for note in clipped.notes())
    scaled = _flat(CATALOGUE.mix(["fixed isl=100 osl=40 scale-input=0.5 scale-output=2"]), 5)
    assert {(d.prompt_tokens, d.output_tokens) for d in scaled} == {(50, 80)}
    with pytest.raises(LoadgenError, match="hardly ever"):
        _flat(CATALOGUE.mix(["fixed isl=100 max-input=50"]), 5)


def test_trace_limits_count_what_they_cost() -> None:
    trace = TraceWorkload.of("t", [Demand(10 * i, 5) for i in range(1, 11)])
    from loadgen.workload.shape import Long, Shape, shaped

    short = shaped(trace, Shape(max_input=60))
    assert len(short.draw(None, np.random.default_rng(0))) == 6
    assert "4 dropped, 0 changed, of 10" in short.notes()[-1]
    cut = shaped(trace, Shape(max_input=60, on_long=Long.CLIP))
    assert "0 dropped, 4 changed, of 10" in cut.notes()[-1]


def test_trace_starts_again_with_fresh_prefixes() -> None:
    trace = TraceWorkload.of("t", [Demand(600, 5, prefix=(0, 1)), Demand(600, 5, prefix=(0, 2))])
    rows = _flat(trace, 4)
    assert [d.prefix for d in rows] == [(0, 1), (0, 2), (3, 4), (3, 5)]


def test_storm_adds_correlated_long_requests() -> None:
    storm = CATALOGUE.storm("natural-reasoning requests=100 at=50 within=10")
    schedule = _plan("azure-conv", storms=(storm,))
    calm = _plan("azure-conv")
    long = [p for p in schedule.requests if p.demand.klass == "storm"]
    assert len(long) == 100
    assert all(50 <= p.at_s <= 60 for p in long)
    rest = [(p.at_s, p.demand) for p in schedule.requests if p.demand.klass != "storm"]
    assert rest == [(p.at_s, p.demand) for p in calm.requests]
    control = CATALOGUE.storm("natural-reasoning requests=100 at=50 within=10 independent=yes")
    spread = [p for p in _plan("azure-conv", storms=(control,)).requests if p.demand.klass == "storm"]
    assert max(p.at_s for p in spread) - min(p.at_s for p in spread) > 100
    assert sorted(p.demand.output_tokens for p in spread) == sorted(p.demand.output_tokens for p in long)


def test_replay_scales_time_and_needs_times() -> None:
    trace = TraceWorkload.of("t", [Demand(5, 5, at_s=float(10 * i)) for i in range(10)])
    schedule = build(Plan(trace, Arrivals(Kind.REPLAY, time_scale=2)))
    assert [p.at_s for p in schedule.requests] == [5.0 * i for i in range(10)]
    cut = build(Plan(trace, Arrivals(Kind.REPLAY, time_scale=2), duration_s=22))
    assert len(cut.requests) == 5
    with pytest.raises(LoadgenError, match="no times"):
        build(Plan(fixed(1, 1), Arrivals(Kind.REPLAY), count=3))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("azure-chat", "neither a known name"),
        ("no/such.csv", "no such file"),
        ("azure-conv colour=red", "unknown option colour"),
        ("azure-conv weight=heavy", "not understood"),
        ("azure-conv weight", "not KEY=VALUE"),
        ("azure-conv weight=1 weight=2", "given twice"),
        ("azure-conv weight=0", "weights above 0"),
        ("", "none given"),
    ],
)
def test_malformed_workloads_are_refused_with_their_cause(text: str, cause: str) -> None:
    with pytest.raises(LoadgenError, match=cause):
        CATALOGUE.mix([text])
