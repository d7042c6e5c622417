"""Published beside simulated: grades, gates, files."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from engine.simulated.cost import DoesNotFitError
from loadgen.bound import Bound, Resource
from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.reproduce import command
from loadgen.reproduce.batch import BatchRun, Spread
from loadgen.reproduce.case import Case
from loadgen.reproduce.command import Options, draw_map, reproduce
from loadgen.reproduce.crossover import crossings
from loadgen.reproduce.document import document, flat_rows
from loadgen.reproduce.gates import gates, knee
from loadgen.reproduce.layout import engine_of
from loadgen.reproduce.map import COARSE, SUBJECTS, Grid, map_cases, map_cells, steady_cells
from loadgen.reproduce.pool import Runs
from loadgen.reproduce.published import Grade, quotient, secondary, seed
from loadgen.reproduce.show import show
from loadgen.reproduce.studies import M8, M14, M32, M405, case, studies

#: Seconds in the order that the gates ask for.
SPEED = {"TP8": 1.0, "DP4×TP2": 1.1, "DP2×TP4": 1.05, "DP8": 2.0, "DP4": 4.0, "DP2": 8.0, "1 GPU": 16.0, "PP8": 7.0}


def fake(wanted: Case, seconds: float | None = None, lost: float | None = None) -> BatchRun:
    """A run with the outcome that the published study would like."""
    layout = str(wanted.layout)
    recomputed = (0.9 if wanted.max_num_seqs > 200 else 0.0) if lost is None else lost
    none = Spread(0.0, 0.0, 0.0)
    return BatchRun(
        layout, wanted.layout.gpus, wanted.requests, 0, wanted.max_num_seqs, 1000, seconds or SPEED.get(layout, 3.0),
        none, none, 0, round(recomputed * 1000), 0.0, 0.1, 0.9, 0.0, (),
    )  # fmt: skip


def good_runs() -> Runs:
    return {row.case: fake(row.case) for study in studies() for row in study.rows}


def test_no_figure_is_given_out_as_the_papers_own() -> None:
    figures = [row.published for study in studies() for row in study.rows if row.published]
    figures += [c.published for study in studies() for c in study.comparisons if c.published]
    assert {figure.grade for figure in figures} == {Grade.SECONDARY, Grade.SEED}
    assert all(figure.label.startswith(("[secondary", "[seed")) for figure in figures)
    assert quotient(6.0, 3.0).label == "[secondary, quotient]"
    assert (secondary(5).value, seed(4).grade) == (5, Grade.SEED)


def test_every_layout_of_every_study_fits() -> None:
    for wanted in {(row.case.model, row.case.layout) for study in studies() for row in study.rows}:
        assert engine_of(*wanted).blocks_total > 0
    with pytest.raises(DoesNotFitError):
        engine_of(M405, case(M405, "DP2×TP4").layout)


def test_comparisons_are_among_the_rows() -> None:
    for study in studies():
        cases = {row.case for row in study.rows}
        assert all({c.slower, c.faster} <= cases for c in study.comparisons), study.name


def test_gates_pass_on_the_published_directions() -> None:
    found = gates(good_runs(), seed=1)
    assert [gate.name for gate in found if not gate.passed] == []
    assert len(found) == 7


@pytest.mark.parametrize(
    ("broken", "seconds", "lost", "name"),
    [
        (case(M405, "PP8"), 0.9, None, "405B"),
        (case(M405, "PP8", scale=0.3), 0.9, None, "405B"),
        (case(M32, "TP8"), 2.1, None, "TP8 is faster than DP8"),
        (case(M8, "DP2", 10_000, 1024), 6.0, None, "near-linear"),
        (case(M8, "1 GPU", 10_000, 100), None, 0.05, "no preemption loss below"),
        (case(M8, "1 GPU", 10_000, 4000), None, 0.05, "large preemption loss above"),
    ],
)
def test_each_gate_can_fail(broken: Case, seconds: float | None, lost: float | None, name: str) -> None:
    runs = good_runs()
    runs[broken] = fake(broken, seconds, lost)
    failed = [gate.name for gate in gates(runs, seed=1) if not gate.passed]
    assert len(failed) == 1
    assert name in failed[0]


def test_the_knee_by_hand() -> None:
    """A prompt of 10 and an output of 20 hold 20 tokens on average; long answers weigh by how long they stay."""
    assert knee(2000, [Demand(10, 20)]) == pytest.approx(100)
    assert knee(2000, [Demand(10, 20), Demand(10, 200)]) < 2000 / ((20 + 110) / 2)


def test_the_document_puts_both_side_by_side() -> None:
    chosen = studies()
    data = document(chosen, good_runs(), gates(good_runs(), 1), 1, 1.0)
    rows = {(row["study"], row["label"]): row for row in flat_rows(data)}
    assert rows["405b", "PP8"]["published_s"] == 7537
    assert rows["405b", "PP8"]["makespan_s"] == 7.0
    assert rows["405b", "PP8"]["grade"] == "[secondary]"
    assert rows["8b-scaling", "DP8"]["scaling_efficiency"] == pytest.approx(16 / (2 * 8))
    dense = next(study for study in data["studies"] if study["name"] == "405b")
    assert dense["comparisons"][0]["same_direction"] is True
    text = Console(width=220, record=True, file=io.StringIO())
    show(text, data)
    shown = text.export_text()
    assert "7,537 s [secondary]" in shown
    assert "[seed]" in shown
    assert "model figures" in shown


def quick(wanted: Case, seed: int) -> BatchRun:
    return fake(wanted)


def test_the_exit_code_is_the_gates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("loadgen.reproduce.pool.run_case", quick)
    console = Console(file=(tmp_path / "out").open("w"), width=200)
    assert reproduce("inference-scaling", Options(out=tmp_path, quiet=True), console) == 0
    assert json.loads((tmp_path / "reproduction.json").read_text())["schema"] == "loadgen-reproduction/1"
    with (tmp_path / "reproduction.csv").open() as file:
        assert len(list(csv.DictReader(file))) == sum(len(study.rows) for study in studies())
    monkeypatch.setattr("loadgen.reproduce.pool.run_case", lambda wanted, seed: fake(wanted, 1.0))
    assert reproduce("inference-scaling", Options(quiet=True), console) == command.FAILED
    with pytest.raises(LoadgenError, match="known: inference-scaling"):
        reproduce("something", Options(), console)
    with pytest.raises(LoadgenError, match="share"):
        reproduce("inference-scaling", Options(share=2.0), console)


def test_a_small_map_really_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    grid = Grid((60.0, 120.0), (0.0,), (8,))
    monkeypatch.setattr("loadgen.reproduce.map.bound_of", lambda pools, demands: Bound(2.0, Resource.KV, 0))
    assert draw_map(Options(out=tmp_path, quiet=True), Console(file=(tmp_path / "out").open("w")), grid=grid) == 0
    data = json.loads((tmp_path / "map.json").read_text())
    assert len(data["cells"]) == 2 * 2 * len(SUBJECTS), "a batch and the steady state"
    assert all(cell["lead"] >= 1 for cell in data["cells"])
    assert "<svg" in (tmp_path / "map-32b.svg").read_text()
    assert "<svg" in (tmp_path / "crossover.svg").read_text()


def test_cells_that_look_like_the_paper_are_marked() -> None:
    grid = Grid((1000.0,), (0.0,), (100,))
    subjects = [subject for subject in SUBJECTS if subject.name == "32B"]
    runs: Runs = {wanted: fake(wanted) for wanted in map_cases(grid, subjects)}
    (cell,) = map_cells(grid, runs, subjects)
    assert (cell.winner, cell.order_as_published, cell.like_published) == ("TP8", True, False)
    runs = {
        wanted: replace(run, makespan_s=1.25 if run.layout == "DP8" else 1.0) for wanted, run in runs.items() if run
    }
    assert map_cells(grid, runs, subjects)[0].like_published


@pytest.mark.parametrize(
    ("gains", "size", "bound"),
    [((0.5, 0.5, 2.0), (14.8 * 32.8) ** 0.5, ""), ((1.1, 2, 2), 8.0, "below"), ((0.5, 0.6, 0.7), 32.8, "above")],
)
def test_the_crossover_is_where_both_take_equally_long(gains: tuple[float, ...], size: float, bound: str) -> None:
    grid = Grid((1000.0,), (0.0,), (100,))
    gain_of = dict(zip((M8, M14, M32), gains, strict=True))
    runs: Runs = {}
    for wanted in map_cases(grid):
        alone = str(wanted.layout) == "DP8" and wanted.model in gain_of
        fits = str(wanted.layout) != "DP8" or wanted.model in gain_of
        runs[wanted] = fake(wanted, gain_of[wanted.model] if alone else 1.0) if fits else None
    (crossing,) = crossings(map_cells(grid, runs))
    assert crossing.billions == pytest.approx(size)
    assert crossing.bound == bound


@pytest.mark.slow
def test_in_the_long_run_replicas_win_when_small_and_tensor_parallelism_when_large() -> None:
    """The published order of layouts, without a last answer to wait for: 8B by DP8, 32B by some TP (R-36)."""
    chosen = [subject for subject in SUBJECTS if subject.name in ("8B", "32B")]
    small, large = steady_cells(Grid((6000.0,), (0.7,), ()), 1, chosen)
    assert small.winner == "DP8"
    assert "TP" in large.winner
    assert large.order_as_published


def test_the_coarse_map_is_coarse() -> None:
    assert len(map_cases(COARSE)) < 700


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (Options(jobs=0), "jobs=0"),
        (Options(host_us=-5.0), "host-us=-5"),
        (Options(host_us=float("nan")), "host-us=nan"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options: Options, complaint: str) -> None:
    for name in command.NAMES:
        with pytest.raises(LoadgenError, match=complaint):
            reproduce(name, options, Console())
