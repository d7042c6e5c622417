"""SLO syntax, scopes, presets and the run-level forms."""

import math

import pytest

from loadgen.failure import LoadgenError
from loadgen.result import Ending
from loadgen.slo.constraint import Constraint, parse_goodput, value_ms
from loadgen.slo.policy import Policy, build_policy
from loadgen.slo.presets import PRESETS, preset
from loadgen.slo.relative import ReferenceRun, RelativePolicy
from tests.loadgen.build import result


def test_vllm_goodput_syntax_is_milliseconds() -> None:
    expected = (Constraint("ttft", 200), Constraint("tpot", 20), Constraint("e2el", 5000))
    assert parse_goodput(["ttft:200 tpot:20 e2el:5000"]) == expected
    assert parse_goodput(["ttft:200", "tpot:20", "e2el:5000"]) == expected


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("ttft:-1", "negative"),
        ("latency:5", "unknown name 'latency'"),
        ("itl:5", "which percentile"),
        ("itl_p100:5", "unknown name"),
        ("ttft", "not KEY:VALUE"),
        ("ttft:fast", "not a number"),
        ("ttft:nan", "not a finite number"),
        ("ttft:inf", "not a finite number"),
        ("ttft:1 ttft:2", "given twice"),
    ],
)
def test_malformed_slo_is_refused_with_its_cause(text: str, cause: str) -> None:
    with pytest.raises(LoadgenError, match=cause):
        parse_goodput([text])


def test_metrics_of_a_request_are_plain_arithmetic() -> None:
    r = result(at=1.0, first=0.2, gaps=[0.01, 0.03, 0.02], tail=0.04)
    assert value_ms("ttft", r) == pytest.approx(200)
    assert value_ms("e2el", r) == pytest.approx(300)
    assert value_ms("tpot", r) == pytest.approx(100 / 3)
    assert value_ms("itl_mean", r) == pytest.approx(20)
    assert value_ms("itl_max", r) == pytest.approx(30)
    assert value_ms("itl_p50", r) == pytest.approx(20)


def test_itl_counts_tokens_that_share_a_chunk_as_gapless() -> None:
    r = result(first=0.1, gaps=[0.03, 0.06], tokens=[2, 3, 1])
    assert [round(g, 6) for g in r.token_gaps_s()] == [0, 0.03, 0, 0, 0.06]
    assert [round(g, 6) for g in r.chunk_gaps_s()] == [0.03, 0.06]


def test_longest_tenth_of_the_gaps_is_mooncakes_tbt() -> None:
    r = result(first=0.1, gaps=[0.01] * 18 + [0.1, 0.3])
    assert value_ms("itl_top10", r) == pytest.approx(200)


def test_one_token_output_skips_tpot() -> None:
    policy = build_policy(["ttft:200 tpot:1"])
    checks = policy.checks(result(first=0.1))
    assert [(c.constraint.metric, c.value_ms is None, c.held) for c in checks] == [
        ("ttft", False, True),
        ("tpot", True, True),
    ]


def test_class_and_bucket_limits_override_the_default() -> None:
    policy = build_policy(["ttft:200 tpot:20"], ["chat=ttft:100"], ["1001-5000=tpot:50"])
    chat = result(klass="chat", gaps=[0.01])
    long = result(klass="batch", gaps=[0.01] * 1500)
    assert {str(c) for c in policy.constraints_for(chat)} == {"ttft:100", "tpot:20"}
    assert {str(c) for c in policy.constraints_for(long)} == {"ttft:200", "tpot:50"}


@pytest.mark.parametrize("bad", ["chat", "=ttft:1", "chat="])
def test_malformed_scope_is_refused(bad: str) -> None:
    with pytest.raises(LoadgenError, match="not of the form"):
        build_policy([], [bad])


def test_unknown_bucket_is_refused() -> None:
    with pytest.raises(LoadgenError, match="unknown output bucket"):
        build_policy([], [], ["0-7=tpot:1"])


def test_slo_scale_multiplies_every_limit() -> None:
    policy = build_policy(["ttft:200 tpot:20"], ["chat=ttft:100"]).scaled(0.5)
    assert [str(c) for rule in policy.rules for c in rule.constraints] == ["ttft:100", "tpot:10", "ttft:50"]


def test_presets_hold_the_published_limits_and_name_their_source() -> None:
    limits = {name: p.describe()[0] for name, p in PRESETS.items() if isinstance(p, Policy)}
    assert limits["distserve-chatbot-13b"] == "all: ttft:250 tpot:100"
    assert limits["distserve-chatbot-66b"] == "all: ttft:2500 tpot:150"
    assert limits["distserve-chatbot-175b"] == "all: ttft:4000 tpot:200"
    assert limits["distserve-code-66b"] == "all: ttft:125 tpot:200"
    assert limits["distserve-summarisation-66b"] == "all: ttft:15000 tpot:150"
    assert limits["mooncake-real-trace"] == "all: ttft:30000 tpot:100"
    assert limits["mooncake-fast25-pd-ratio"] == "all: ttft:10000 itl_top10:100"
    assert all(p.source for p in PRESETS.values())
    with pytest.raises(LoadgenError, match="unknown preset"):
        preset("distserve")


def _splitwise() -> RelativePolicy:
    policy = preset("splitwise")
    assert isinstance(policy, RelativePolicy)
    return policy


def test_splitwise_form_has_nine_conditions_on_slowdowns() -> None:
    reference = ReferenceRun.of([result(i, first=0.1 * (i + 1), gaps=[0.01] * 9) for i in range(20)])
    same = [result(i, first=0.1 * (i + 1), gaps=[0.01] * 9) for i in range(20)]
    checks = _splitwise().evaluate(same, reference)
    assert len(checks) == 9
    assert all(c.held and c.value == pytest.approx(1) for c in checks)
    slow = [result(i, first=0.25 * (i + 1), gaps=[0.012] * 9) for i in range(20)]
    by_name = {(c.condition.metric, c.condition.percentile): c for c in _splitwise().evaluate(slow, reference)}
    assert by_name["ttft", 50].value == pytest.approx(2.5)
    assert not by_name["ttft", 50].held
    assert by_name["ttft", 90].held
    assert by_name["tpot", 50].value == pytest.approx(1.2)


def test_a_reference_of_zero_tells_no_slowdown() -> None:
    reference = ReferenceRun.of([result(0, gaps=[0.0]), result(1, gaps=[0.01])])
    checks = _splitwise().evaluate([result(0, gaps=[0.02]), result(1, gaps=[0.02])], reference)
    assert [c.value for c in checks if c.condition.metric == "tpot"] == pytest.approx([2, 2, 2])


def test_failures_are_infinitely_slow_in_the_run_level_forms() -> None:
    reference = ReferenceRun.of([result(i, gaps=[0.01]) for i in range(10)])
    run = [result(i, gaps=[0.01]) for i in range(8)]
    run += [result(i, first=None, ending=Ending.REJECTED) for i in (8, 9)]
    by_percentile = {
        c.condition.percentile: c for c in _splitwise().evaluate(run, reference) if c.condition.metric == "ttft"
    }
    assert by_percentile[50].held
    assert math.isinf(by_percentile[90].value)
    assert not by_percentile[99].held


def test_mooncake_relative_form_is_multiples_of_the_lowest_load() -> None:
    policy = preset("mooncake-lowest-load")
    assert isinstance(policy, RelativePolicy)
    reference = ReferenceRun.of([result(i, first=0.1, gaps=[0.01] * 5) for i in range(10)])
    ttft, tpot = policy.evaluate([result(i, first=0.9, gaps=[0.06] * 5) for i in range(10)], reference)
    assert ttft.value == pytest.approx(9)
    assert ttft.held
    assert tpot.value == pytest.approx(6)
    assert not tpot.held


def test_a_sample_run_alone_stands_for_the_whole_run() -> None:
    """Requests that were not in the sample count neither when they were served nor when they were lost."""
    reference = ReferenceRun.of([result(i, first=0.1, gaps=[0.01] * 9) for i in range(0, 100, 5)])
    lost = [result(i, first=None, ending=Ending.REJECTED) for i in (1, 2, 3, 4, 6, 7)]
    served = [result(i, first=0.1, gaps=[0.01] * 9) for i in range(100) if i not in (1, 2, 3, 4, 6, 7)]
    assert all(c.held for c in _splitwise().evaluate([*lost, *served], reference))
    also = [result(i, first=None, ending=Ending.REJECTED) for i in (0, 5, 10)]
    assert not all(c.held for c in _splitwise().evaluate([*also, *served], reference))
