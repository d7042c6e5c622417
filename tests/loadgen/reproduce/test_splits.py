"""Split against colocated: what is compared, and what a direction is."""

import pytest
from rich.console import Console

from loadgen.plan.question import Effort
from loadgen.reproduce import splits_command
from loadgen.reproduce.contest import Contest, Contested, Side, best_of, colocated, split
from loadgen.reproduce.splits import QWEN, example_contests, machine_splits, planner_contests, shape_contests
from loadgen.reproduce.splits_command import INTERRUPTED, _shape, _sign, _signs, reproduce_splits
from loadgen.reproduce.splits_files import picture

SMALL = "h200-sxm/llama-3.1-8b"
BRIEF = Effort(seeds=1, judged=40, span=0.5, precision=0.3, lead=0.2, tail=0.1)


def contested(contest: Contest, ratio: float) -> Contested:
    return Contested(contest, Side("together", (1.0,), 2.0), Side("apart", (ratio,), 2.0))


def test_every_layout_is_one_that_fits_and_sides_have_equal_gpus() -> None:
    for contest in [*planner_contests(), *shape_contests()]:
        assert {c.gpus for c in contest.together} == {max(c.gpus for c in contest.apart)}
        assert all(part.engine.fits for c in (*contest.together, *contest.apart) for part in c.parts)
    for layouts in [pair[1] for pair in example_contests().values()] + [m[2] for m in machine_splits("azure-code")]:
        assert all(part.engine.fits for c in layouts for part in c.parts)


@pytest.mark.slow
def test_the_best_of_a_side_is_found_and_a_worse_one_costs_little() -> None:
    contest = Contest("", "fixed isl=1000 osl=20", "ttft:300 tpot:30", (), ())
    both = best_of(contest, colocated(SMALL, 2, budgets=(2048,)), BRIEF, BRIEF)
    starved = best_of(contest, split(SMALL, (1, 1), (1, 1), (2048,)), BRIEF, BRIEF)
    assert both.rate > starved.rate > 0  # prompts need both GPUs
    again = best_of(contest, (*colocated(SMALL, 2, budgets=(2048,)), *split(SMALL, (1, 1), (1, 1), (2048,))), BRIEF)
    assert again.label == both.label


def test_a_wrong_sign_is_a_failed_gate_and_a_tie_is_none() -> None:
    even, wins, _, loses, _ = planner_contests()
    assert [_sign(r) for r in (0.9, 0.97, 1.03, 1.2)] == [-1, 0, 0, 1]
    found = _signs([contested(even, 0.8), contested(wins, 0.9), contested(wins, 1.1), contested(loses, 1.2)])
    assert [gate.passed for gate in found] == [True, False, True, False]
    assert [gate.passed for gate in _shape([contested(c, 1.1) for c in shape_contests()])] == [True, False]


def test_published_ratios_are_those_of_the_rates() -> None:
    assert [round(c.published or 0, 2) for c in planner_contests()] == [1.01, 1.23, 1.28, 0.51, 0.40]
    assert all(QWEN in c.together[0].parts[0].engine.profile for c in planner_contests())


@pytest.mark.parametrize("ratio", [0.5, 1.5])
def test_the_picture_has_every_limit(ratio: float) -> None:
    drawn = picture([contested(c, ratio) for c in planner_contests()], [contested(c, ratio) for c in shape_contests()])
    assert all(f"TPOT {limit} ms" in drawn for limit in (15, 25, 100))


def test_what_had_ended_before_an_interrupt_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [1.25, 0.75]

    def held(contest: Contest, effort: Effort) -> Contested:
        if not left:
            raise KeyboardInterrupt
        return contested(contest, left.pop(0))

    monkeypatch.setattr(splits_command, "held", held)
    console = Console(record=True, width=200)
    assert reproduce_splits(1, None, lambda done, total: None, console) == INTERRUPTED
    shown = console.export_text()
    assert "1.25" in shown
    assert "0.75" in shown
    assert "stopped: interrupted; 2 of 35" in shown
