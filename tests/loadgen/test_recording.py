"""Session-mix traces (R-60): written, read, and replayed on layouts side by side."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # it has no types
import orjson
import pytest
from typer.testing import CliRunner

from loadgen.arms.virtual import VirtualArm
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.cli.app import app
from loadgen.compare import alike
from loadgen.demand import Demand
from loadgen.experiment import Experiment
from loadgen.failure import LoadgenError
from loadgen.schedule import Plan, Planned, Schedule, Sessions, build
from loadgen.simulate import parse_layout
from loadgen.simulate.precision import precision_of
from loadgen.workload.readers.reader import Format, read, recognise
from loadgen.workload.recording import lines, write
from loadgen.workload.spec import Catalogue

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "loadgen-sessions-1.json"
MIX = ["chat-sessions weight=3 precision=bfloat16", "agent-sessions precision=fp8 patience=30", "azure-conv tenants=3"]


def scheduled(spec: Sequence[str] = MIX, sessions: Sessions = Sessions.FIXED) -> Schedule:
    return build(Plan(Catalogue().mix(spec), Arrivals(rate=4.0), seed=3, duration_s=60.0, sessions=sessions))


def replayed(path: Path, sessions: Sessions = Sessions.FIXED) -> Schedule:
    return build(Plan(Catalogue().mix([str(path)]), Arrivals(Kind.REPLAY), sessions=sessions))


def plain(requests: Sequence[Planned], origin_s: float) -> list[tuple[float, Demand]]:
    """What is asked and when. Where a request came from is not part of it."""
    asked = (p.demand for p in requests)
    return [
        (round(p.at_s - origin_s, 6), Demand(**{name: getattr(d, name) for name in _KEPT}))
        for p, d in zip(requests, asked, strict=True)
    ]


_KEPT = (
    "prompt_tokens", "output_tokens", "prefix", "block_tokens", "tenant", "klass", "session", "turn", "think_s",
    "service_s", "patience_s", "precision",
)  # fmt: skip


@pytest.mark.parametrize("name", ["mix.jsonl", "mix.jsonl.gz"])
@pytest.mark.parametrize("sessions", list(Sessions))
def test_what_is_written_is_sent_again(tmp_path: Path, name: str, sessions: Sessions) -> None:
    """The whole mix: turns at their times or after their answers, prefixes, think times, labels, precision."""
    first = scheduled(sessions=sessions)
    write(tmp_path / name, first.requests, {})
    assert recognise(tmp_path / name) is Format.SESSIONS
    again = replayed(tmp_path / name, sessions=sessions)
    origin = first.requests[0].at_s
    no_prefix = [(at_s, d) if d.prefix else (at_s, _with_blocks(d)) for at_s, d in plain(first.requests, origin)]
    if sessions is Sessions.FIXED:
        assert plain(again.requests, 0.0) == no_prefix
    assert {p.demand.precision for p in again.requests} == {"bfloat16", "fp8", ""}
    assert sum(p.after is not None for p in again.requests) == sum(p.after is not None for p in first.requests)
    assert max(p.demand.turn for p in again.requests) == max(p.demand.turn for p in first.requests) > 3


def _with_blocks(d: Demand) -> Demand:
    """Without ids the size of a block says nothing, and is not kept."""
    return replace(d, block_tokens=512)


def test_every_line_is_as_the_schema_has_it() -> None:
    each = jsonschema.Draft202012Validator(orjson.loads(SCHEMA.read_bytes()))
    written = [orjson.loads(line) for line in lines(scheduled().requests, {"notes": ["by hand"]})]
    for line in written:
        each.validate(line)
    assert written[0]["requests"] == len(written) - 1
    assert any(line.get("think_s") for line in written)


def test_a_precision_that_all_share_is_said_once(tmp_path: Path) -> None:
    requests = scheduled(["chat-sessions precision=bfloat16"]).requests
    written = [orjson.loads(line) for line in lines(requests, {})]
    assert written[0]["precision"] == "bfloat16"
    assert not any("precision" in line for line in written[1:])
    write(tmp_path / "one.jsonl", requests, {})
    assert {d.precision for d in read(tmp_path / "one.jsonl")[0]} == {"bfloat16"}


HEAD = '{"schema": "tandem-sessions/1", "requests": 2, "sessions": 1, "precision": ""}\n'
FIRST = '{"arrival_s": 0, "session": "a", "turn": 0, "input_tokens": 5, "output_tokens": 5}\n'


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (HEAD + FIRST + FIRST, r"m\.jsonl:3: turn 0 of session 'a' where turn 1 comes next"),
        (HEAD + FIRST, "1 requests where its head says 2"),
        (HEAD.replace("2", "null") + FIRST, r"m\.jsonl:1: requests is None, not a whole number"),
        (HEAD + FIRST + '{"session": "a", "turn": 1, "input_tokens": 5, "output_tokens": 5}\n', "arrival_s in every row"),
        (HEAD + FIRST + '{"arrival_s": 1, "session": "a", "turn": 1, "input_tokens": 5}\n', "'output_tokens' is missing|input_tokens"),
    ],
)  # fmt: skip
def test_a_broken_trace_is_named(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(text)
    with pytest.raises(LoadgenError, match=cause):
        read(path)


def test_a_replay_sends_later_turns_at_the_times_of_the_trace(tmp_path: Path) -> None:
    """A plain trace may have arrivals and no think times: its turns came all at once."""
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,session\n1.25,10,5,a\n9.5,30,5,a\n3.0,10,5,\n")
    whole = build(Plan(Catalogue().mix([str(path)]), Arrivals(Kind.REPLAY)))
    assert [p.at_s for p in whole.requests] == pytest.approx([0.0, 1.75, 8.25])
    faster = build(Plan(Catalogue().mix([str(path)]), Arrivals(Kind.REPLAY, time_scale=2.0)))
    assert [p.at_s for p in faster.requests] == pytest.approx([0.0, 0.875, 4.125])


def test_a_sample_keeps_the_size_of_its_blocks(tmp_path: Path) -> None:
    """Read as blocks of 512, every prompt was one block, and shared nothing but it."""
    shown = CliRunner().invoke(app, ["workload", "sample", "chat-sessions", "-n", "30"])
    assert shown.exit_code == 0
    path = tmp_path / "s.csv"
    path.write_text(shown.output)
    rows, _ = read(path)
    assert {d.block_tokens for d in rows} == {64}
    assert all(len(d.prefix) == -(-d.prompt_tokens // 64) for d in rows)
    assert any(d.turn for d in rows)


def test_layouts_of_other_precision_are_told(tmp_path: Path) -> None:
    requests = scheduled(["fixed isl=64 osl=4 precision=bfloat16"]).requests[:5]
    schedule = Schedule(requests, 60.0, Arrivals(), 0)
    same, other = (parse_layout(f"--profile h200-sxm/{name} --colocated 1") for name in ("llama-3.1-8b", "deepseek-r1"))
    assert precision_of(other.pools[0].profile) == "fp8/bfloat16"
    assert not [note for note in same.simulate(schedule).notes if note.startswith("precision")]
    (note,) = [note for note in other.simulate(schedule).notes if note.startswith("precision")]
    assert "answered with bfloat16, this layout has fp8/bfloat16" in note


def test_a_simulated_replay_is_no_second_repetition(tmp_path: Path) -> None:
    """Three equal runs had a spread of nothing, and so a winner by any difference."""
    path = tmp_path / "mix.jsonl"
    write(path, scheduled(["chat-sessions"]).requests, {})
    arms = [VirtualArm(name, parse_layout("--profile toy --colocated 1")) for name in "ab"]
    replay = Experiment(Catalogue().mix([str(path)]), Arrivals(Kind.REPLAY))
    assert alike(replay, arms)
    assert not alike(Experiment(Catalogue().mix([f"{path} shuffle=yes"]), Arrivals(Kind.REPLAY), count=9), arms)
    assert not alike(Experiment(Catalogue().mix(["chat-sessions"]), Arrivals(rate=1.0), count=9), arms)


@pytest.mark.slow
def test_one_command_replays_it_on_two_profiles(tmp_path: Path) -> None:
    trace, out = tmp_path / "mix.jsonl.gz", tmp_path / "out"
    recorded = CliRunner().invoke(
        app, ["workload", "record", "chat-sessions", "-r", "3", "-d", "40", "--precision", "bfloat16", "-o", str(trace)]
    )
    assert recorded.exit_code == 0, recorded.output
    arms = [f"{name}=sim:--profile h200-sxm/{table} --colocated 1" for name, table in TABLES.items()]
    words = ["--trace", str(trace), "--arrivals", "replay", "--goodput", "ttft:500 tpot:50", "-q", "-o", str(out)]
    compared = CliRunner().invoke(app, ["compare", *arms, *words])
    assert compared.exit_code == 0, (compared.output, compared.exception)
    runs = orjson.loads((out / "summary.json").read_bytes())["runs"]
    assert [run["arm"] for run in runs] == list(TABLES)
    assert len({run["schedule"]["digest"] for run in runs}) == 1
    assert runs[0]["overall"]["latency_ms"]["tpot"]["p50"] != runs[1]["overall"]["latency_ms"]["tpot"]["p50"]


TABLES = {"large": "qwen3-8b", "small": "qwen3-8b?gib=24"}
