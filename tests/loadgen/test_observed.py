"""A gateway's account of its traffic as a workload (R-63)."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.observe.traffic import Traffic
from gateway.request.phase import Phase
from gateway.request.record import Record
from loadgen.failure import LoadgenError
from loadgen.plan.words import Words, asked
from loadgen.workload.observed import LEAST, Observed
from loadgen.workload.readers import reader
from loadgen.workload.spec import Catalogue


def account(gaps: "list[float]", cached: int = 0) -> dict[str, Any]:
    """As the gateway writes it."""
    traffic, at_s = Traffic(10_000, began_s=0.0), 0.0
    for number, gap in enumerate(gaps):
        at_s += gap
        made = Record("id", "m", "acme", prompt_tokens=500 + number, choices=1, started_s=at_s, klass="chat")
        made.phase, made.completion_tokens, made.cached_tokens = Phase.DONE, 10 + number % 7, cached
        traffic.ended(made)
    document: dict[str, Any] = traffic.seen([], at_s).document(0, [], rows=True)
    parsed: dict[str, Any] = json.loads(json.dumps(document))
    return parsed


def test_arrivals_and_lengths_come_back() -> None:
    observed = Observed.of(account([0.5] * 100))
    assert [row.prompt_tokens for row in observed.rows[:3]] == [500, 501, 502]
    assert [row.output_tokens for row in observed.rows[:3]] == [10, 11, 12]
    assert [row.at_s for row in observed.rows[:2]] == pytest.approx([0.5, 1.0])
    assert observed.rate_ps == pytest.approx(2.0)


def test_only_the_newest_where_a_change_has_come() -> None:
    observed = Observed.of(account([0.5] * 100), within_s=10.0)
    assert len(observed.rows) == 21
    assert observed.rate_ps == pytest.approx(2.1)
    assert observed.rows[0].prompt_tokens == 579


def test_answers_that_run_are_as_long_as_others_that_had_come_as_far() -> None:
    """After a drift what was expected of them is of the traffic before."""
    document = account([0.5] * 100)
    for number, row in enumerate(document["rows"]):
        row[4], row[6] = number % 25 * 4, 500  # answers, what was expected
        if number % 2:
            row[4], row[5] = 40, "open"
    lengths = [row.output_tokens for row in Observed.of(document).rows[1::2]]
    assert min(lengths) > 40
    assert max(lengths) < 100
    assert np.mean(lengths) == pytest.approx(70, abs=7)
    document["rows"] = document["rows"][:20]
    assert Observed.of(document).rows[1].output_tokens == 500  # too few to say


@pytest.mark.parametrize(("shape", "low", "high"), [(0.25, 0.2, 0.32), (1.0, 1.0, 1.0), (4.0, 3.2, 4.8)])
def test_burstiness_is_the_shape_of_the_gaps_and_1_where_nothing_else_is_shown(
    shape: float, low: float, high: float
) -> None:
    gaps = np.random.default_rng(3).gamma(shape, 1 / shape, 3000).tolist()
    assert low <= Observed.of(account(gaps)).burstiness <= high


def test_what_was_cached_is_a_beginning_that_prompts_share() -> None:
    rows = Observed.of(account([1.0] * 5, cached=300)).rows
    assert {row.prefix for row in rows} == {(0, 1, 2, 3)}
    assert rows[0].block_tokens * len(rows[0].prefix) == 256


def test_loadgen_reads_the_file(tmp_path: Path) -> None:
    file = tmp_path / "traffic.json"
    file.write_text(json.dumps(account([1.0] * 60)))
    assert reader.recognise(file) is reader.Format.OBSERVED
    assert len(Catalogue().mix([str(file)]).draw(None, np.random.default_rng(0))) == 60


@pytest.mark.parametrize(
    ("document", "cause"),
    [
        ({"schema": "other/1"}, "not a tandem-traffic/1 document"),
        ({key: value for key, value in account([1.0]).items() if key != "rows"}, "it has no rows"),
        (account([1.0]) | {"rows": [[1, 2]]}, "not as tandem-traffic/1 has it"),
        (account([1.0]) | {"rows": [[0, "a", 10**15, 10**15, 5, "done", 5]]}, "1000000000000000 tokens"),
        (account([1.0]) | {"rows": [[0, "a", 10, -1, 5, "done", 5]]}, "-1 tokens"),
        (account([1.0]) | {"rows": [[0, "a", 10, 0, math.inf, "done", 5]]}, "infinity"),
        (account([1.0]) | {"window_s": math.inf}, "a window of inf s"),
        (account([1.0]) | {"window_s": -1}, "a window of -1 s"),
        (account([]), "no request in it"),
    ],
)
def test_what_is_no_account_is_refused_in_one_line(document: dict[str, Any], cause: str) -> None:
    with pytest.raises(LoadgenError, match=cause):
        Observed.of(document)


def test_a_plan_takes_its_lengths_and_its_bursts() -> None:
    gaps = np.random.default_rng(3).gamma(0.25, 4.0, 400).tolist()
    observed = Observed.of(account(gaps))
    words = Words(model="h200-sxm/llama-3.1-8b", gpus="1", observed=observed, goodput=["ttft:300 tpot:30"])
    question = asked(words).question
    assert question.arrivals.burstiness == observed.burstiness < 0.5
    prompts = [d.prompt_tokens for d in question.sample]
    assert sorted(set(prompts)) == list(range(500, 900))
    assert prompts != sorted(prompts)  # each seed has them in an order of its own


def test_a_plan_takes_one_traffic_and_enough_of_it() -> None:
    few = Observed.of(account([1.0] * (LEAST - 1)))
    limits = {"model": "h200-sxm/llama-3.1-8b", "gpus": "1", "goodput": ["ttft:300 tpot:30"]}
    with pytest.raises(LoadgenError, match="too few to plan by"):
        asked(Words(observed=few, **limits))  # type: ignore[arg-type]  # of differing types
    with pytest.raises(LoadgenError, match="not both"):
        asked(Words(observed=few, workload=["azure-conv"], **limits))  # type: ignore[arg-type]  # of differing types
