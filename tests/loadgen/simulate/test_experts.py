"""A run on unevenly chosen experts says what their ranks did (R-34)."""

import re

import pytest

from loadgen.demand import Demand
from loadgen.plan.card.card import card_of
from loadgen.simulate import parse_layout, simulate
from tests.loadgen.simulate.build import opened

R1 = "h200-sxm/deepseek-r1?tp=8"


def run(options: str) -> tuple[float, list[str]]:
    layout = parse_layout(f"--profile '{R1}{options}' --colocated 1")
    schedule = opened([(0.0, Demand(2000, 30)) for _ in range(20)])
    results = simulate(layout, schedule).results
    assert all(result.completed for result in results)
    notes = [note for note in layout.simulate(schedule).notes if note.startswith("experts")]
    return max(result.e2e_s for result in results), notes


def test_it_takes_longer_and_the_ranks_add_up() -> None:
    even_s, silent = run("&ep=8")
    uneven_s, (note,) = run("&ep=8&expert-skew=0.38")
    assert not silent
    assert uneven_s > 1.05 * even_s
    assert run("&ep=8&expert-skew=0.38") == (uneven_s, [note]), "a seed fixes it"
    by_rank = [float(count) for count in note.rpartition(": ")[2].split(", ")]
    assert len(by_rank) == 8
    tokens = 20 * (2000 + 30) * 8 / 1e6
    assert abs(sum(by_rank) / tokens - 1) < 0.01
    (slowest,) = re.findall(r"slowest of 8 ranks (\S+) times", note)
    assert 1.2 < float(slowest) < 1.4


def test_slices_of_experts_wait_for_nobody() -> None:
    _, (note,) = run("&ep=1&expert-skew=0.38")
    assert "not spread over ranks" in note


def test_a_card_has_it_by_layout() -> None:
    (eight, one) = card_of(f"{R1}&pp=1&expert-skew=0.24").placements
    assert eight.expert_load is not None
    assert one.expert_load is not None
    assert (eight.expert_load.ranks, one.expert_load.ranks) == (8, 1)
    assert eight.expert_load.slowest > one.expert_load.slowest


def test_prompts_count_where_they_were_computed() -> None:
    """A decode worker reads the KV of prompts, and its experts never saw them."""
    layout = parse_layout(f"--profile '{R1}&ep=8&expert-skew=0.38' --prefill 1 --decode 1")
    simulated = layout.simulate(opened([(0.5 * n, Demand(2000, 30)) for n in range(20)]))
    assert {result.path for result in simulated.results} == {"remote"}
    notes = [note for note in simulated.notes if note.startswith("experts")]
    millions = [sum(float(count) for count in note.rpartition(": ")[2].split(", ")) for note in notes]
    prompts, answers = 20 * 2000 * 8 / 1e6, 20 * 30 * 8 / 1e6
    assert millions[0] == pytest.approx(prompts, rel=0.02)
    assert millions[1] == pytest.approx(answers, rel=0.1)
