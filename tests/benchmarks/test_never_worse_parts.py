"""Parts of the role policy on static layouts, and the words that ask for a layout or a cell."""

from collections.abc import Collection
from functools import partial
from math import inf
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.never_worse.__main__ import main
from benchmarks.never_worse.ablation import Part, asked, with_parts
from benchmarks.never_worse.arms import Arm, Kind, named, short
from benchmarks.never_worse.mixes import AIMS, MODELS, Case
from benchmarks.never_worse.store import Seen, Store
from benchmarks.never_worse.trial import Aim, Length
from gateway.policy.roles import Aims, Fluid, Knobs
from loadgen.demand import Demand
from loadgen.result import Result
from loadgen.simulate import Layout, simulate
from loadgen.workload.family import fixed
from tests.loadgen.simulate.build import layout, opened

AIM = Aim("any", 40, 5)
TIGHT = AIMS[0]
QWEN = MODELS["qwen3-32b"]
ALL = tuple(Part)


def crowd() -> list[tuple[float, Demand]]:
    """More than the workers can do in time, long and short."""
    return [(n * 0.002, Demand(60 + n * 37 % 700, 2 + n * 13 % 30)) for n in range(150)]


def served(one: Layout) -> list[Result]:
    return list(simulate(one, opened(crowd())).results)


def having(one: Layout, parts: Collection[Part]) -> Layout:
    return with_parts(Arm(Kind.COLOCATED, "a", "a", one), AIM, parts).layout


@pytest.mark.parametrize("counts", [{"colocated": 2}, {"prefill": 1, "decode": 1}])
def test_a_layout_with_no_part_is_the_layout(counts: dict[str, int]) -> None:
    static = layout(**counts, blocks=600, admission=False)
    assert served(having(static, ())) == served(static)


def test_a_layout_with_all_parts_is_a_fluid_fleet_in_which_nobody_leans() -> None:
    static = layout(colocated=2, blocks=600, admission=False)
    fluid = layout(
        colocated=2,
        blocks=600,
        admission=False,
        roles=partial(Fluid, Aims(AIM.ttft_ms / 1e3, AIM.tpot_ms / 1e3), knobs=Knobs(leans=False)),
    )
    assert served(having(static, ALL)) == served(fluid)


@pytest.mark.parametrize("part", ALL)
def test_each_part_does_something(part: Part) -> None:
    static = layout(colocated=2, blocks=600, admission=False)
    assert served(having(static, (part,))) != served(static)
    assert served(having(static, (part,))) != served(having(static, ALL))


def test_with_the_order_alone_a_prompt_that_is_late_anyway_lets_others_go_first() -> None:
    """In a full engine's steps of 512 tokens, of 6 ms each: three long prompts at once, of which the third would be late."""
    demands = [(0.0, Demand(1800, 2)), (0.001, Demand(1800, 2)), (0.002, Demand(1800, 2)), (0.003, Demand(100, 2))]
    static = layout(colocated=1, blocks=600, admission=False)
    before = simulate(static, opened(demands)).results
    after = simulate(having(static, (Part.ORDER,)), opened(demands)).results
    limit_s = AIM.ttft_ms / 1e3
    assert (before[3].ttft_s or 0) > limit_s
    assert (after[3].ttft_s or 1) < limit_s
    assert (after[2].ttft_s or 0) > (after[3].ttft_s or 0)


@pytest.mark.parametrize(
    "name", ["4C TP2/512", "8C TP1/256", "4F TP2", "1R TP8", "6P TP1/2048 + 1D TP2", "7P TP1/512 + 1D TP1"]
)
def test_layouts_are_asked_for_as_tables_write_them(name: str) -> None:
    arm = asked(QWEN, TIGHT, name)
    assert short(arm.name) == name
    assert sum(pool.workers * pool.gpus_each for pool in arm.layout.pools) == 8


def test_a_layout_may_have_parts() -> None:
    assert asked(QWEN, TIGHT, "4C TP2/512 +steps+order").name == "4C TP2/512 +order+steps"
    assert asked(QWEN, TIGHT, "6P TP1/2048 + 1D TP2 +order").layout.roles is not None
    assert asked(QWEN, TIGHT, "6P TP1/2048 + 1D TP2").layout.roles is None


@pytest.mark.parametrize(
    ("name", "why"),
    [("9C TP2/512", "no layout"), ("4F TP2 +order", "whole policy"), ("4C TP2/512 +luck", "parts are")],
)
def test_a_layout_that_there_is_not_is_told(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        asked(QWEN, TIGHT, name)


def test_a_split_asked_for_by_name_runs_at_any_rate() -> None:
    """Of those that are searched, some are left out by their kernels alone."""
    arm = named(QWEN, TIGHT, "1P TP1/2048 + 7D TP1")
    assert arm is not None
    assert arm.most == inf


@pytest.mark.parametrize("text", ["qwen3-32b code 500/30", "qwen3-32b code tight"])
def test_a_cell_is_asked_for_as_its_row_begins(text: str) -> None:
    case = Case.of(text)
    assert (case.model, case.mix, case.aim) == (QWEN, "code", TIGHT)
    assert str(case) == "qwen3-32b code 500/30"


@pytest.mark.parametrize("text", ["gpt code 500/30", "qwen3-32b poems 500/30", "qwen3-32b code 1/1", "qwen3-32b"])
def test_a_cell_that_there_is_not_ends_with_one_line(text: str) -> None:
    app = typer.Typer()
    app.command()(main)
    ended = CliRunner().invoke(app, ["--cell", text])
    assert ended.exit_code == 2
    assert "--cell" in ended.output


def test_a_longer_run_judges_as_many_more_and_is_another_in_the_store() -> None:
    usual, longer = Length.of(fixed(200, 20), AIM, 100), Length.of(fixed(200, 20), AIM, 100, 4)
    assert longer.lead_s == 4 * usual.lead_s
    assert (usual.words, longer.words) == ("100", "100x4")


def test_a_store_that_was_killed_as_it_wrote_goes_on(tmp_path: Path) -> None:
    path, seen = tmp_path / "runs.jsonl", Seen(60, 3, cut=False, handed=0)
    Store(path).keep("a 7", seen)
    with path.open("a") as file:
        file.write('{"run": "b 7", "ju')
    Store(path).keep("c 7", seen)
    again = Store(path)
    assert again.find("c 7") == seen
    assert again.find("b 7") is None
    assert len(again) == 2
