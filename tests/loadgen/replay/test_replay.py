"""Records are read as what was asked, and a replay says what a policy would have done with it."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.policy_config import PolicyConfig
from loadgen.failure import LoadgenError
from loadgen.replay.fleet import words_of
from loadgen.replay.log import Wanted, read
from loadgen.replay.replay import QUEUED_ABOVE_S, replay, tally
from loadgen.simulate.simulation import simulate
from loadgen.simulate.words import parse_layout


def policy(**settings: Any) -> PolicyConfig:
    return PolicyConfig.model_validate(settings)


def row(index: int, rate: float = 4.0, **more: Any) -> dict[str, Any]:
    return {
        "arm": "a", "rate": rate, "repetition": 0, "index": index, "class": "high" if index % 2 else "low",
        "tenant": f"t{index % 2}", "intended_s": 5 + index * 0.01, "planned_prompt_tokens": 40,
        "planned_output_tokens": 20, "ending": "rejected", **more,
    }  # fmt: skip


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in rows))
    return str(path)


def ended(at_s: int, total_s: float, **more: Any) -> dict[str, Any]:
    return {
        "event": "request", "timestamp": f"2026-01-01T00:00:{at_s:02}.000000Z", "total_s": total_s, "prompt_tokens": 30,
        "completion_tokens": 7, "estimated_tokens": 90.4, "outcome": "done", "tenant": "t", "class": "gold", **more,
    }  # fmt: skip


def test_a_record_of_loadgen_is_read_as_what_was_asked(tmp_path: Path) -> None:
    log = written(tmp_path / "requests.jsonl", [row(at) for at in range(4)] + [row(at, 8.0) for at in range(3)])
    first, second = read(log, Wanted()), read(str(tmp_path), Wanted(run=1))
    assert [round(one.at_s, 6) for one in first.schedule.requests] == [0.0, 0.01, 0.02, 0.03]
    assert len(second.schedule.requests) == 3
    demand = first.schedule.requests[1].demand
    assert (demand.prompt_tokens, demand.output_tokens, demand.tenant, demand.klass) == (40, 20, "t1", "high")
    with pytest.raises(LoadgenError, match="2 runs"):
        read(log, Wanted(run=2))


def test_a_gateways_log_is_read_by_when_its_requests_came(tmp_path: Path) -> None:
    file = tmp_path / "gateway.log"
    rows = [
        {"event": "ready", "pid": 1},
        ended(20, 2.0),
        ended(19, 5.0, outcome="rejected", completion_tokens=0),
        ended(25, 1.0, prompt_tokens=0),
    ]
    written(file, rows)
    logged = file.read_text().replace('{"event":"request"', '2026-01-01 INFO tandem.requests: {"event":"request"')
    file.write_text("2026 INFO gateway: words {or not}\n" + logged)
    found = read(str(file), Wanted())
    assert [(one.at_s, one.demand.output_tokens) for one in found.schedule.requests] == [(0.0, 90), (4.0, 7)]
    assert any("1 answers" in note for note in found.notes)


def test_the_share_to_replay_can_be_cut_and_hurried(tmp_path: Path) -> None:
    log = written(tmp_path / "requests.jsonl", [row(at) for at in range(50)])
    assert len(read(log, Wanted(requests=5)).schedule.requests) == 5
    assert len(read(log, Wanted(duration_s=0.095)).schedule.requests) == 10
    assert read(log, Wanted(time_scale=2)).schedule.requests[2].at_s == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(time_scale=0), "--time-scale 0 must be above 0"),
        (Wanted(time_scale=float("nan")), "must be above 0"),
        (Wanted(duration_s=0), "--duration 0 is too short"),
    ],
)
def test_a_share_without_requests_is_one_line(tmp_path: Path, wanted: Wanted, said: str) -> None:
    log = written(tmp_path / "requests.jsonl", [row(at) for at in range(3)])
    with pytest.raises(LoadgenError, match=said):
        read(log, wanted)


def test_a_rate_of_nothing_is_not_taken_for_none() -> None:
    with pytest.raises(LoadgenError, match="rate 0 is not a positive number"):
        read("fixed isl=10 osl=5", Wanted(rate=0, requests=7))


def test_a_trace_and_a_family_are_workloads(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,10,5\n3,20,6\n")
    assert [one.at_s for one in read(str(trace), Wanted()).schedule.requests] == [0.0, 3.0]
    assert len(read("fixed isl=10 osl=5", Wanted(rate=5, requests=7)).schedule.requests) == 7
    for words, wanted in (
        ("fixed", Wanted()),
        ("fixed", Wanted(rate=3)),
        ("nothing.jsonl", Wanted()),
        ("no", Wanted()),
    ):
        with pytest.raises(LoadgenError):
            read(words, wanted)


@pytest.mark.parametrize("line", [{"intended_s": "x"}, {"tenant": None, "planned_prompt_tokens": None}])
def test_a_torn_record_is_named_by_its_line(tmp_path: Path, line: dict[str, Any]) -> None:
    log = written(tmp_path / "requests.jsonl", [row(0), row(1, **line)])
    with pytest.raises(LoadgenError, match="line 2"):
        read(log, Wanted())


def test_a_replay_counts_by_class_tenant_and_reason(tmp_path: Path) -> None:
    log = written(tmp_path / "requests.jsonl", [row(at) for at in range(200)])
    schedule, layout = read(log, Wanted()).schedule, parse_layout("--profile toy --colocated 1")
    strict = policy(
        classes={"gold": {"efforts": ["high"]}}, tenants={"t0": {"requests_per_s": 5, "burst_s": 1}}, version="strict"
    )
    one, other = replay(schedule, layout, strict), replay(schedule, layout, policy())
    assert set(one.by_class) == {"gold", "default"}
    assert one.by_class["gold"].requests == 100
    assert one.by_tenant["t1"].refusals == 0
    assert one.total.refused == one.by_tenant["t0"].refused
    assert one.total.refused["rate_limited"] > 80
    for found in (one, other):
        total = found.total
        assert total.admitted + total.refusals == total.requests == 200
        assert total.queued <= total.admitted
    assert (other.total.admitted, other.total.refused) == (200, {})
    assert replay(schedule, layout, strict).document() == one.document()


def test_waiting_is_told_from_the_gateways_own_time(tmp_path: Path) -> None:
    log = written(
        tmp_path / "requests.jsonl",
        [row(at, planned_prompt_tokens=2000, planned_output_tokens=2000) for at in range(120)],
    )
    schedule = read(log, Wanted()).schedule
    roomy = replay(schedule, parse_layout("--profile toy --colocated 4"), policy(rule="declared"))
    tight = replay(schedule, parse_layout("--profile toy --colocated 1"), policy(rule="declared"))
    assert roomy.total.queued < tight.total.queued
    assert (tight.total.wait_s.p99 or 0) > (roomy.total.wait_s.p99 or 0)


def test_a_turn_that_comes_at_once_is_no_waiting_though_the_prefill_engine_is_busy(tmp_path: Path) -> None:
    log = written(
        tmp_path / "requests.jsonl",
        [row(at, planned_prompt_tokens=900, planned_output_tokens=20) for at in range(60)],
    )
    results = simulate(parse_layout("--profile toy --prefill 1 --decode 4"), read(log, Wanted()).schedule).results
    assert max(dict(one.stages_s)["queue"] for one in results) > 10 * QUEUED_ABOVE_S
    total = tally(results)
    assert (total.admitted, total.queued) == (60, 0)
    assert total.wait_s.p99 == pytest.approx(0.0, abs=1e-9)


def test_the_fleet_is_that_of_a_running_gateway() -> None:
    workers = [{"role": "prefill", "tp": 1, "engine_version": "1 (toy)"}] + [
        {"role": "decode", "tp": 2, "engine_version": "1 (toy)"}
    ] * 2
    words = words_of({"workers": workers, "limits": {"max_queued": 7, "queue_s": 3.0}})
    layout = parse_layout(words.replace("-tp 2", "-tp 1"))
    assert [(pool.role.value, pool.workers) for pool in layout.pools] == [("prefill", 1), ("decode", 2)]
    assert (layout.gateway.admission.max_queued, layout.gateway.deadlines.queue_s) == (7, 3.0)
    real = [{"role": "both", "tp": 1, "engine_version": "0.32.0"}]
    assert words_of({"workers": real}, "h200-sxm/qwen3-32b").startswith("--profile h200-sxm/qwen3-32b --colocated 1")
    for status in ({}, {"workers": real}, {"workers": [*workers, {**workers[1], "tp": 4}]}):
        with pytest.raises(LoadgenError):
            words_of(status)
