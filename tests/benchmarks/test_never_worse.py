"""The never-worse experiment: a run is decided early, and decided right."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.never_worse import trial
from benchmarks.never_worse.arms import Kind, Work, static_splits
from benchmarks.never_worse.contest import Cell, Contest
from benchmarks.never_worse.mixes import MODELS, SCREEN_SEED
from benchmarks.never_worse.screens import Screens
from benchmarks.never_worse.store import Seen, Store
from benchmarks.never_worse.table import row, summary
from benchmarks.never_worse.trial import GOAL, Aim, Hunt, Length
from loadgen.measure.verdict import judge
from loadgen.simulate import simulate
from loadgen.workload.family import fixed
from tests.loadgen.simulate.build import layout

AIM = Aim("any", 40, 5)
LENGTH = Length(0.5, 1.0, 0.2, 60)


def hunt(aim: Aim = AIM, seeds: tuple[int, ...] = (7,), store: Store | None = None) -> Hunt:
    question = aim.question(fixed(200, 20))
    return Hunt(layout(colocated=2, admission=False), question, aim, LENGTH, seeds, store=store or Store())


@pytest.mark.parametrize("rate", [5.0, 60.0, 90.0, 120.0, 400.0])
@pytest.mark.parametrize("seeds", [(7,), (7, 8, 9)])
def test_the_verdict_is_that_of_the_whole_runs(rate: float, seeds: tuple[int, ...]) -> None:
    one, good = hunt(seeds=seeds), []
    for seed in seeds:
        schedule, window = one.schedule(rate, seed)
        judged = [r for r in simulate(one.layout, schedule).results if window[0] <= r.intended_s < window[1]]
        good.append([judge(r, AIM.policy).good for r in judged])
    together = [flag for flags in good for flag in flags]
    assert one.holds(rate) == (sum(together) >= GOAL * len(together))
    assert one.good(rate) == pytest.approx([sum(flags) / len(flags) for flags in good])


def test_one_seed_may_make_up_for_another() -> None:
    store = Store()
    for seed, bad in ((7, 12), (8, 2)):
        store.keep(f" {AIM.limits} {LENGTH.words} {seed} 90", Seen(70, bad, cut=False, handed=0))
    assert hunt(seeds=(7, 8), store=store).holds(90.0)
    assert not hunt(seeds=(7,), store=store).holds(90.0)


def test_what_was_cut_short_is_run_again_where_more_may_be_bad() -> None:
    """Alone the first was lost after 8 bad ones; with three more that are perfect it need not be."""
    store = Store()
    words = f" {AIM.limits} {LENGTH.words} 7 5"
    store.keep(words, Seen(60, 7, cut=True, handed=0))
    for seed in (8, 9, 10):
        store.keep(f" {AIM.limits} {LENGTH.words} {seed} 5", Seen(60, 0, cut=False, handed=0))
    assert hunt(seeds=(7, 8, 9, 10), store=store).holds(5.0)
    seen = store.find(words)
    assert seen is not None
    assert not seen.cut


@pytest.mark.slow
def test_the_highest_rate_lies_between_one_that_held_and_one_that_did_not() -> None:
    one = hunt()
    rate = one.highest(1.0, 1.15, 0.05)
    assert one.holds(rate / 1.04)
    assert not one.holds(rate * 1.04)
    assert rate == pytest.approx(hunt().highest(200.0, 1.15, 0.05), rel=0.06)


def test_a_limit_that_nothing_keeps_ends_the_search() -> None:
    assert hunt(replace(AIM, ttft_ms=0.001)).highest(8.0, 1.15, 0.05) == 0.0


def test_a_row_says_what_came_of_what() -> None:
    rates = {Kind.COLOCATED: 8.0, Kind.SPLIT: 10.0, Kind.ROUTED: 11.0, Kind.FLUID: 12.1}
    cell = Cell("m", "mix", AIM, 3, {kind: kind.value for kind in Kind}, rates, points=(1.0, 3.0, 2.0))
    assert cell.best is Kind.SPLIT
    assert "**1.210** | 1.100 | 1.100 | +2.0 ± 0.6 |" in row(cell)
    assert "97 % of the best static layout in 1" in summary([cell])


def test_a_static_kind_that_the_screen_left_behind_is_not_the_best() -> None:
    rates = dict.fromkeys(Kind, 10.0)
    cell = Cell("m", "mix", AIM, 1, {}, {**rates, Kind.SPLIT: 11.0}, frozenset({Kind.SPLIT}))
    assert cell.best is Kind.COLOCATED


class Scripted(Store):
    """Layouts that hold what a test says, by their names and seeds; others hold nothing."""

    def __init__(self, held: dict[str, dict[int, float]]) -> None:
        super().__init__()
        self.held = held
        self.asked: set[str] = set()

    def find(self, run: str) -> Seen | None:
        name, seed, rate = run.rsplit(" ", 2)
        self.asked.add(seed)
        held = next((held for arm, held in self.held.items() if f" {arm} " in name), {})
        return Seen(100, 5 if float(rate) <= held.get(int(seed), held.get(0, 0.0)) else 20, cut=False, handed=0)


HELD: dict[str, dict[int, float]] = {
    "1C TP8/2048": {0: 8.0},
    "1C TP8/512": {0: 9.0, SCREEN_SEED: 7.0},  # of the same degree, so it is not the runner-up
    "2C TP4/512": {0: 6.6},
    "2fluid TP4": {SCREEN_SEED: 8.0, 3000: 5.0},
    "1fluid TP8": {SCREEN_SEED: 7.0, 3000: 10.0},
    "4fluid TP2": {SCREEN_SEED: 6.0, 3000: 20.0},  # too far behind in the screen
}


def contest(store: Store, screens: Screens) -> Contest:
    return Contest(MODELS["qwen3-32b"], "summaries", Aim("any", 500, 30), 250, store, screens)


def test_the_runner_up_of_another_degree_may_win_the_comparison() -> None:
    cell = contest(Scripted(HELD), Screens()).cell((3000,))
    assert (cell.names[Kind.COLOCATED], cell.names[Kind.FLUID]) == ("1C TP8/2048", "1fluid TP8")
    assert cell.ratio(Kind.FLUID, cell.best) == pytest.approx(10 / 8, rel=0.03)
    assert cell.rates[Kind.ROUTED] == cell.rates[Kind.FLUID]  # it never handed anything over
    assert cell.points == (0.0,)


def test_a_cell_that_was_screened_is_not_screened_again(tmp_path: Path) -> None:
    path, first = tmp_path / "screens.jsonl", Scripted(HELD)
    screened = contest(first, Screens(path)).cell((3000,))
    again = Scripted(HELD)
    found = contest(again, Screens(path)).cell((3000,))
    assert found == screened
    assert str(SCREEN_SEED) in first.asked
    assert str(SCREEN_SEED) not in again.asked


def test_splits_that_could_carry_the_most_come_first() -> None:
    model = MODELS["qwen3-32b"]
    arms = static_splits(model, Work(dict.fromkeys(model.degrees, 0.9), dict.fromkeys(model.degrees, 0.1)))
    assert arms[0].name == "7P TP1/2048 + 1D TP1"
    assert {"3P TP2/2048 + 2D TP1", "1P TP4/2048 + 1D TP4", "1P TP4/2048 + 4D TP1"} <= {arm.name for arm in arms}
    assert "7P TP1/512 + 1D TP1" in [other().name for other in arms[0].others]


def test_runs_judge_no_request_of_the_fill_up() -> None:
    _, window = hunt().schedule(50.0, 7)
    assert window == (LENGTH.lead_s, LENGTH.lead_s + LENGTH.judged / 50.0)
    assert trial.GOAL == 0.9
