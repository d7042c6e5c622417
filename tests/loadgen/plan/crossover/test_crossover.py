"""The crossover in model size: what lies between two tables, and what moves the point."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from engine.simulated.cost import load_profile
from loadgen.bound import Bound, Pool, Resource
from loadgen.failure import LoadgenError
from loadgen.plan.crossover import curve as curves
from loadgen.plan.crossover import session as sessions
from loadgen.plan.crossover.curve import Setting, Task, crossing, curve, point
from loadgen.plan.crossover.dense import Sizes
from loadgen.plan.crossover.session import Words, run_crossover
from loadgen.plan.crossover.variant import AS_TABULATED, variant

MODEL = "h200-sxm/qwen3-32b"
SETTING = Setting(mean=250, spread=0.0, at_once=512)
STEPS = ((1, 500, ()), (64, 64 * 2000, ()), (300, 300 * 900, ((700, 0),)))


def room(pools: Sequence[Pool], demands: object) -> Bound:
    """Layouts are as fast as they have room for KV, and TP loses a fifth: as in arithmetic by hand."""
    (pool,) = pools
    return Bound(pool.engines * pool.profile.kv_tokens_total * (1.0 if pool.profile.tp == 1 else 0.8), Resource.KV, 0)


def test_the_model_asked_for_is_on_the_line_and_is_its_table() -> None:
    sizes = Sizes(MODEL)
    assert [name.partition("/")[2] for name in sizes.tables][:3] == [
        "llama-3.1-8b", "deepseek-r1-distill-qwen-14b", "qwen3-32b",
    ]  # fmt: skip
    dense = sizes.at(sizes.billions)
    assert dense.grade == "table qwen3-32b"
    assert sizes.billions == pytest.approx(32.8, abs=0.1)
    for tp in (1, 2, 8):
        table, engine = load_profile(f"{MODEL}?tp={tp}"), dense.engine(tp, AS_TABULATED, 256)
        assert engine is not None
        assert engine.blocks_total == pytest.approx(table.blocks_total, rel=1e-4)
        for step in STEPS:
            assert engine.cost.step_s(*step) == pytest.approx(table.cost.step_s(*step))


def test_a_size_between_two_tables_lies_between_them() -> None:
    sizes = Sizes(MODEL)
    engines = [
        sizes.at(billions).engine(2, AS_TABULATED, 256) for billions in (sizes.anchors[1], 20.0, sizes.anchors[2])
    ]
    lower, middle, upper = (engine for engine in engines if engine is not None)
    assert lower.blocks_total > middle.blocks_total > upper.blocks_total
    for step in STEPS:
        assert lower.cost.step_s(*step) < middle.cost.step_s(*step) < upper.cost.step_s(*step)
        assert middle.cost.breakdown(*step).total_s == pytest.approx(middle.cost.step_s(*step))
    run = sum(middle.cost.step_s(8, 8000 + 8 * k) for k in range(50))
    assert middle.cost.decode_run_s(8, 8000, 50) == pytest.approx(run)
    assert sizes.at(20.0).grade == "between deepseek-r1-distill-qwen-14b and qwen3-32b"


def test_memory_and_precision_move_the_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas lose what their weights take eight times: 0.8 · (M - W/8) = M - W at W = 2 M / 9, M what weights and KV have."""
    monkeypatch.setattr(curves, "bound_of", room)
    found = {
        words: crossing(Task(MODEL, SETTING, variant(words) if words else AS_TABULATED)).billions
        for words in ("", "hbm=1.25x", "hbm=0.8x", "weights=fp8", "kv=fp8", "link=2x")
    }
    usable = 0.9 * 141 - 4.3
    assert found[""] == pytest.approx(usable * 2**30 * 2 / 9 / 2 / 1e9, rel=0.05)
    assert found["hbm=0.8x"] < found[""] < found["hbm=1.25x"]
    assert found["weights=fp8"] == pytest.approx(2 * found[""], rel=0.05)
    assert [found["kv=fp8"], found["link=2x"]] == pytest.approx([found[""]] * 2, rel=0.01)


def test_replicas_end_where_one_gpu_does_not_hold_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        curves, "bound_of", lambda pools, demands: replace(room(pools, demands), rate_per_s=1.0 / pools[0].profile.tp)
    )
    task = Task(MODEL, SETTING)
    found = crossing(task)
    assert found.bound == "room"
    assert not math.isinf(point(task, found.billions).gain)
    assert math.isinf(point(task, found.billions * 1.03).gain)
    assert math.isinf(curve(task)[-1].gain)
    assert crossing(Task(MODEL, SETTING, variant("weights=fp8"))).billions > 1.5 * found.billions


def test_the_limit_of_one_engine_goes_before_what_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        curves, "bound_of", lambda pools, demands: Bound(pools[0].profile.max_num_seqs, Resource.SLOTS, 0)
    )
    many = replace(SETTING, at_once=4096)
    assert list(point(Task(MODEL, many), 10.0).rates.values()) == [512, 1024, 1024, 1024]
    assert list(point(Task(MODEL, many, variant("seqs=4096")), 10.0).rates.values()) == [512, 1024, 2048, 4096]


@pytest.mark.slow
def test_by_the_bound_long_answers_ask_for_tensor_parallelism() -> None:
    task = Task(MODEL, Setting(mean=6000, spread=0.0, at_once=8192, gpus=2))
    assert point(task, 32.0).gain > 1.02
    assert point(Task(MODEL, replace(task.setting, mean=250)), 8.1).gain < 0.98


@pytest.mark.parametrize("model", ["h200-sxm/deepseek-r1", "h200-sxm/nothing", "toy", "h200-sxm/qwen3-32b?x=1"])
def test_other_models_are_refused(model: str) -> None:
    with pytest.raises(LoadgenError):
        Sizes(model)


@pytest.mark.parametrize("words", ["hbm=2", "speed=2x", "kv=fp4", "seqs=0", "hbm=0x"])
def test_unknown_cases_are_refused(words: str) -> None:
    with pytest.raises(LoadgenError, match="what-if"):
        variant(words)


def test_a_crossover_leaves_its_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(curves, "bound_of", room)
    console = Console(width=150, file=(tmp_path / "shown").open("w"))
    words = Words(MODEL, outputs=(250, 1000), at_once=(512,), what_if=("hbm=1.25x,kv=fp8",))
    found = run_crossover(words, 1, tmp_path, True, console)
    console.file.flush()
    shown = (tmp_path / "shown").read_text()
    assert "Figures of a model" in shown
    assert "hbm=1.25x" in shown
    assert "half the room" in shown
    data = orjson.loads((tmp_path / "crossover.json").read_bytes())
    assert data["schema"] == "tandem-crossover/1"
    assert [answer["variant"] for answer in data["answers"]] == ["as tabulated"] * 2 + ["hbm=1.25x"] * 2 + [
        "kv=fp8"
    ] * 2
    assert data["answers"][0]["curve"][-1]["gain"] is None
    assert {check["left_out"] for check in data["checks"]} == {"h200-sxm/deepseek-r1-distill-qwen-14b"}
    assert len(found.checks) == 2
    for name in ("crossover-gain.svg", "crossover-size.svg"):
        assert (tmp_path / name).read_text().startswith("<svg")


def test_every_word_is_whole_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On 80 columns the tables that sizes lie between were cut short, three lines a row."""
    monkeypatch.setattr(
        curves,
        "bound_of",
        lambda pools, demands: replace(room(pools, demands), rate_per_s=float(pools[0].profile.tp == 2) + 1),
    )
    console = Console(width=80, file=(tmp_path / "shown").open("w"))
    words = Words(MODEL, outputs=(250, 1000, 2500, 6000), at_once=(8192,), what_if=("hbm=1.25x,fp8=ideal",))
    run_crossover(words, 1, None, True, console)
    console.file.flush()
    shown = (tmp_path / "shown").read_text()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "9.35B" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["32.8B", "qwen3-32b", *["DP4×TP2", "2.00x"] * 4] in lines
    assert ["9.35B", *["DP4×TP2", "2.00x"] * 4] in lines


def test_what_means_nothing_is_refused() -> None:
    wrong = ({"gpus": 1}, {"gpus": 7}, {"outputs": (0,)}, {"outputs": (1e9,)}, {"at_once": (0,)})
    for words in (Words(MODEL, **each) for each in wrong):
        with pytest.raises(LoadgenError, match="crossover"):
            run_crossover(words, 1, None, True, Console())


def test_a_place_that_cannot_be_written_to_is_said_before_anything_is_worked_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "find", lambda *_: pytest.fail("worked out"))
    with pytest.raises(LoadgenError, match="cannot write to /proc/x"):
        run_crossover(Words(MODEL), 1, Path("/proc/x"), True, Console())
