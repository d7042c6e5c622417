"""docs/admission.md says what the code computes."""

import re
from pathlib import Path

from benchmarks.admission import example, picture
from gateway.policy.admission import Candidate
from gateway.policy.admission.survival import grid
from tests.gateway.policy.admission.families import joined

DOCS = Path(__file__).parents[4] / "docs"
PAGE = " ".join((DOCS / "admission.md").read_text().split())


def number(value: float) -> str:
    return f"{value:,.0f}"


def test_the_steps_of_the_example() -> None:
    for row in example.rows((0, 119, 355, 883, 2_198)):
        cells = (row.step, row.mean, row.deviation, row.common, row.high)
        assert f"| {' | '.join(map(number, cells))} |" in PAGE


def test_the_decisions_of_the_example() -> None:
    book, new = example.running(), example.candidate()
    alone, both = book.forecast(example.BUDGET).outlook, joined(book, new, example.BUDGET)
    assert f"now they hold {number(book.held_blocks)} blocks" in PAGE
    assert f"rises to {number(alone.peak_blocks)} at step {alone.peak_step}. One more request brings that to" in PAGE
    assert f"brings that to {number(both.peak_blocks)} of {number(both.limit_blocks)}" in PAGE
    more = example.most_admitted()
    assert f"Of such requests {more} fit" in PAGE
    for at in range(more):
        book.admit(Candidate(f"n{at}", example.PROMPT, example.ANSWERS, example.LIMIT))
    full = joined(book, new, example.BUDGET)
    assert f"{number(full.peak_blocks)} at step {full.peak_step}, a chance of {100 * full.risk:.2f} %" in PAGE
    assert f"while {example.BLOCKS - book.held_blocks} blocks are free" in PAGE


def test_the_rules_of_the_example() -> None:
    counts = example.counts()
    for name, admitted in counts.items():
        named = "error budget without pool and spread" if name == "budget alone" else rf"[^|]*\(`{re.escape(name)}`\)"
        assert re.search(rf"\| {named} \| {admitted} \|", PAGE), name


def test_the_lengths_and_the_grid_of_the_page() -> None:
    lengths, steps = example.ANSWERS, grid()
    assert f"median {lengths.quantile(0.5)}, mean {number(lengths.mean)}" in PAGE
    assert f"95 % quantile {number(lengths.quantile(0.95))} tokens" in PAGE
    assert f"fixed grid of {len(steps)} steps from now to {number(steps[-1])}" in PAGE


def test_the_picture_is_what_the_code_draws() -> None:
    assert (DOCS / "images/admission-forecast.svg").read_text() == picture.picture()
