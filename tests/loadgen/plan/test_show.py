"""What a person sees of a plan: the terminal, the pictures, and what would change."""

from dataclasses import replace
from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from loadgen.measure.interval import Interval
from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.difference import changes
from loadgen.plan.document import plan_document
from loadgen.plan.files import drawings
from loadgen.plan.plan import Planned
from loadgen.plan.race import Stage
from loadgen.plan.ranking import pareto
from loadgen.plan.show import show_plan
from loadgen.plan.worth import Worth
from proto.worker import Role
from tests.loadgen.plan.asking import APART, COLOCATED, MIXED, PROFILE, planned, standing

SVG = "{http://www.w3.org/2000/svg}"


def shown(plan: Planned, columns: int) -> str:
    console = Console(file=StringIO(), width=columns)
    show_plan(plan, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("columns", [80, 150])
def test_layouts_and_figures_are_whole_on_a_narrow_terminal(columns: int) -> None:
    """On 80 columns the ranking had lost its column of layouts, the one thing that had been asked for."""
    seven = Candidate((Part(Role.PREFILL, 7, Engine(PROFILE, tp=2)), Part(Role.DECODE, 1, Engine(PROFILE, tp=2))), 512)
    standings = [standing(COLOCATED, [1234.5, 1100.25]), standing(APART, [1000.75, 1234.25]), standing(seven, [9.0])]
    worth = (
        Worth("+10 % HBM capacity", 0.5, 0.02, Interval(-0.01, 0.05), "GiB", 57.4, None),
        Worth("+2 GPUs (prefill worker)", 123.4, 0.125, Interval(0.101, 0.149), "GPU", 199_908.0, 0.4375),
    )
    said = shown(replace(planned(*standings, prices=((PROFILE, 3.0),)), worth=worth), columns)
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= columns
    words = " ".join(said.split())
    for each in (COLOCATED, APART, seven):
        assert each.label in words
    assert "3 layouts: 3 looked at to the end" in words
    assert "which costs 6 an hour" in words
    assert "+2 GPUs (prefill worker) +199,908 a GPU +12.5% +10.1% to +14.9% 0.438 a GPU" in words
    assert "+10 % HBM capacity +57.4 a GiB +2.0% -1.0% to +5.0% not shown" in words
    assert f"Price of a GPU and hour: {PROFILE} 3." in words


def test_the_order_at_a_higher_goal_is_told_beside_the_ranking() -> None:
    plan = planned(
        standing(APART, [10.0], strict=[6.0]),
        standing(COLOCATED, [9.0], strict=[8.0]),
        standing(MIXED, [8.0], Stage.HEAT, strict=[9.0]),  # a shorter look: no word on it
        goals=(0.9, 0.99),
    )
    assert "At 99%, /s/GPU: colocated 4 (2C TP1/2048), disaggregated 3 (1P TP1/8192 + 1D TP1, local <512)" in " ".join(
        shown(plan, 150).split()
    )
    best = plan_document(plan)["best_by_goal"]
    assert [each["family"] for each in best["0.99"]] == ["colocated", "disaggregated"]
    assert [each["family"] for each in best["0.9"]] == ["disaggregated", "colocated"]


def test_what_nobody_looked_at_yet_is_not_told_as_lost() -> None:
    """A plan that was cut short in its first looks said that nothing held 99 %, and of runs as long as any: a shorter look."""
    early = planned(
        standing(COLOCATED, [10.0], Stage.SCREEN),
        standing(APART, [5.2], Stage.SCREEN),
        goals=(0.9, 0.99),
        running=APART,
    )
    said = " ".join(shown(early, 150).split())
    assert "At 99%, /s/GPU: not looked at in the time there was" in said
    assert "48.0%, one run" in said
    assert "48.0% behind (one run)" in said
    assert "shorter look" not in said
    late = planned(standing(COLOCATED, [10.0], strict=[0.0]), standing(APART, [5.2], Stage.HEAT), goals=(0.9, 0.99))
    said = " ".join(shown(late, 150).split())
    assert "At 99%, /s/GPU: nothing held it" in said
    assert "48.0%, by a shorter look" in said


def test_the_cheapest_is_told_where_it_is_not_the_fastest() -> None:
    cheap = f"{PROFILE}?gib=96"
    other = Candidate((Part(Role.PREFILL, 1, Engine(cheap)), Part(Role.DECODE, 1, Engine(PROFILE))))
    plan = planned(standing(COLOCATED, [10.0]), standing(other, [9.0]), prices=((PROFILE, 3.0), (cheap, 1.0)))
    assert plan.cheapest is plan.rows[1]
    assert [row.candidate for row in plan.front] == [COLOCATED, other]  # neither slower nor dearer
    assert "0.137 for 1,000 good requests; the first one, 0.185" in " ".join(shown(plan, 150).split())
    same = planned(standing(COLOCATED, [10.0]), standing(APART, [9.0]), prices=((PROFILE, 3.0),))
    assert same.cheapest is same.winner
    assert "Cheapest" not in shown(same, 150)


def test_the_running_layout_is_told_by_how_far_it_is_behind_and_what_would_change() -> None:
    """It said "behind, no difference shown behind", and of layouts that differ in sequences alone the same twice."""
    tied = planned(standing(APART, [10.2, 9.9, 10.3]), standing(COLOCATED, [10.0] * 3), running=COLOCATED)
    said = shown(tied, 150)
    assert "Running now: 2C TP1/2048, place 2, 1.3% behind (no difference shown). To change:" in said
    assert "  prefill: none -> 1 x TP1, 8192 tokens a step\n" in said
    shorter = planned(standing(APART, [10.0]), standing(COLOCATED, [8.0], Stage.HEAT), running=COLOCATED)
    assert "20.0% behind (by a shorter look). To change:" in shown(shorter, 150)
    assert plan_document(tied)["running"] == {
        "layout": COLOCATED.label,
        "place": 2,
        "changes": changes(COLOCATED, APART),
    }
    assert plan_document(planned(standing(APART, [1.0])))["running"] is None


def test_what_changes_is_said_and_nothing_else() -> None:
    assert changes(APART, APART) == []
    fewer = Candidate((Part(Role.PREFILL, 1, Engine(PROFILE)), Part(Role.DECODE, 1, Engine(PROFILE, seqs=64))), 16)
    assert changes(APART, fewer) == [
        "decode: 1 x TP1, 8192 tokens a step, 256 sequences -> 1 x TP1, 8192 tokens a step, 64 sequences",
        "local prefill below: 512 -> 16 tokens",
    ]
    assert not any("local" in line for line in changes(APART, COLOCATED))  # nobody hands off there
    kinds = Candidate((*COLOCATED.parts, Part(Role.BOTH, 1, Engine(f"{PROFILE}?gib=96"))))
    assert changes(COLOCATED, kinds) == [
        "colocated: 2 x TP1, 2048 tokens a step, on h200-sxm -> 2 x TP1, 2048 tokens a step, on h200-sxm and "
        "1 x TP1, 8192 tokens a step, on h200-sxm?gib=96"
    ]


def test_the_front_has_nobody_beaten_at_everything() -> None:
    rows = planned(standing(APART, [10.0]), standing(COLOCATED, [12.0])).rows
    fast = replace(rows[0], ttft_p99_ms=100.0, tpot_p99_ms=10.0)
    slow = replace(rows[1], ttft_p99_ms=200.0, tpot_p99_ms=20.0)
    assert pareto([fast, slow]) == [fast]
    assert pareto([fast, replace(slow, tpot_p99_ms=5.0)]) == [fast, replace(slow, tpot_p99_ms=5.0)]


def test_the_front_of_a_picture_rises_and_every_dot_has_its_layouts_name() -> None:
    """It had joined whoever is on the front of all figures, up and down, and named families alone."""
    plan = planned(standing(APART, [10.0]), standing(COLOCATED, [12.0]), standing(MIXED, [11.0]))
    ttft = {APART: 100.0, COLOCATED: 200.0, MIXED: 300.0}
    rows = tuple(replace(row, ttft_p99_ms=ttft[row.candidate], tpot_p99_ms=5.0) for row in plan.rows)
    drawn = drawings(replace(plan, rows=rows))["ttft.svg"]
    picture = ElementTree.fromstring(drawn)
    (front,) = (line for line in picture.iter(f"{SVG}polyline") if line.get("stroke-dasharray"))
    places = [tuple(map(float, point.split(","))) for point in (front.get("points") or "").split()]
    assert len(places) == 2  # who is slower than the winner and serves less is not on it
    assert places[0][0] < places[1][0]
    assert places[0][1] > places[1][1]  # y runs downwards
    dots = [title.text or "" for dot in picture.iter(f"{SVG}circle") for title in dot.iter(f"{SVG}title")]
    assert sorted(text.partition(": ")[0] for text in dots) == sorted(c.label for c in (APART, COLOCATED, MIXED))
    assert "Pareto front" in [text.text.partition(":")[0] for text in picture.iter(f"{SVG}text") if text.text]
