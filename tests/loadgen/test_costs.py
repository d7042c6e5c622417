"""Which layout is cheapest for the whole mix, ablations, and what a report may not leave out."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from loadgen.client.conditions import conditions_of
from loadgen.report.ablation import ablation, ablation_of
from loadgen.report.mix import Share, Standing, costs, headline, remarks, standings
from loadgen.report.validation import NOT_TOLD, missing, not_told

SHORT, LONG = "0-500", "10001-"


def _group(offered: int, good: int, rejected: int = 0) -> dict[str, Any]:
    counts = {"good": good, "slo_missed": offered - good - rejected, "rejected": rejected, "failed": 0, "timed_out": 0}
    return {
        "offered": offered,
        "completed": offered - rejected,
        "counts": counts,
        "attainment": good / offered,
    }


def _run(name: str, gpu_s: float, short: tuple[int, int, int], long: tuple[int, int, int], **more: Any) -> Any:
    both = [a + b for a, b in zip(short, long, strict=True)]
    groups = {SHORT: _group(*short), LONG: _group(*long)}
    cost = {"gpu_hours": gpu_s / 3600, "per_1000_good": None, "total": None} | more.pop("cost", {})
    return {
        "arm": name,
        "rate": 4.0,
        "repetition": 0,
        "invalid": [],
        "cost": cost,
        "overall": _group(both[0], both[1], both[2]),
        "by_class": {"chat": _group(*short), "reasoning": _group(*long)},
        "by_bucket": groups,
    } | more


def _served(gpu_s: float = 200.0, **more: Any) -> Any:
    return _run("whole", gpu_s, (80, 80, 0), (20, 19, 0), **more)


def _cropped(gpu_s: float = 80.0, **more: Any) -> Any:
    return _run("cropped", gpu_s, (80, 80, 0), (20, 0, 20), **more)


def test_a_layout_that_rejects_the_long_tail_is_not_called_cheapest() -> None:
    found = standings([_cropped(), _served()])
    cropped, served = (one.gpu_s_per_good for one in found)
    assert cropped is not None
    assert served is not None
    assert cropped < served
    lines = remarks(found)
    assert lines[0] == "at 4 req/s: cheapest for the whole mix: whole, 2.02 GPU-seconds a useful request"
    assert lines[1].startswith(
        "at 4 req/s: cropped spends 1.00 GPU-seconds, but leaves out reasoning (0% attained, 20 of"
    )
    page = costs({"runs": [_cropped(), _served()]})
    assert "▼ 0.0% · – · 20 rejected" in page
    assert "cheapest for the whole mix: whole" in page


def test_nobody_is_cheapest_when_all_leave_something_out() -> None:
    lines = remarks(standings([_cropped(), _cropped(arm="other")]))
    assert "no layout attains 90% in every class and output length, so none is cheapest" in lines[0]
    assert len(lines) == 3


def test_layouts_within_five_per_cent_are_not_told_apart_and_invalid_ones_not_ranked() -> None:
    lines = remarks(standings([_served(), _served(208.0, arm="near"), _served(150.0, arm="bad", invalid=["lag"])]))
    assert lines == [
        "at 4 req/s: bad had an invalid run and is not ranked",
        "at 4 req/s: cheapest for the whole mix: whole and near, 2.02 GPU-seconds a useful request",
    ]
    assert remarks(standings([_served()])) == [], "one layout is no comparison"


@pytest.mark.parametrize("one", [_served(), _cropped()])
def test_one_layout_that_is_left_is_not_called_cheapest(one: Any) -> None:
    lines = remarks(standings([one, _served(150.0, arm="bad", invalid=["lag"])]))
    assert lines == ["at 4 req/s: bad had an invalid run and is not ranked"]


def test_headline_has_work_cost_and_rejections() -> None:
    (one,) = standings([_cropped(cost={"total": 0.2}), _cropped(cost={"total": 0.2}, repetition=1)])
    assert headline(one) == [
        "3,600 completed requests per GPU-hour",
        "cost of a useful request: 1.00 GPU-seconds, 2.50 per 1,000",
        "40 of 200 admissions rejected",
    ]
    nothing = Standing("x", None, 10, None, 0, Share("all", 5, 0, 5), (), ())
    assert headline(nothing)[1] == "cost of a useful request: no request was useful"


def test_a_class_costs_its_even_share_over_its_attainment() -> None:
    (one,) = standings([_run("x", 100.0, (50, 50, 0), (50, 25, 0))])
    parts = {part.label: one.cost_per_good(part) for part in one.classes}
    assert parts == {"chat": pytest.approx(1.0), "reasoning": pytest.approx(2.0)}
    weighed = sum((cost or 0) * part.good for cost, part in zip(parts.values(), one.classes, strict=True))
    assert weighed == pytest.approx(100.0), "the classes share all the GPU time and no more"


def _comparison(good: Mapping[str, float], first: str = "base") -> dict[str, Any]:
    cells = [{"rate": 4.0, "class": "", "arm": arm, "attainment": 0.9, "good_per_gpu": g} for arm, g in good.items()]
    contests = [
        {
            "rate": 4.0,
            "class": "",
            "arm": arm,
            "against": first,
            "valid": True,
            "winner": arm if g - good[first] > 0.2 else "",
            "difference": {"low": g - good[first] - 0.1, "high": g - good[first] + 0.1},
        }
        for arm, g in good.items()
        if arm != first
    ]
    return {"arms": [{"name": arm} for arm in good], "cells": cells, "contests": contests}


def _cells(page: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in rows][1:]


def test_ablation_shows_baseline_each_alone_and_all_together() -> None:
    page = ablation(_comparison({"base": 1.0, "+chunks": 1.3, "+cache": 1.1, "+chunks+cache": 1.35}))
    rows = _cells(page)
    assert [row[0] for row in rows] == ["base", "+chunks", "+cache", "sum of the parts", "+chunks+cache"]
    assert [row[3] for row in rows] == ["", "+0.300", "+0.100", "+0.400", "+0.350"]
    assert [row[6] for row in rows] == ["", "gain", "no difference shown", "", "gain"]
    assert "not run" not in page


@pytest.mark.parametrize(
    ("arms", "gaps"),
    [
        (["base", "+a", "+b"], ["not run: all together (+a+b)"]),
        (["base", "+a+b"], ["not run alone: a, b"]),
        (["base", "+a"], []),
    ],
)
def test_ablation_says_what_was_not_run(arms: Sequence[str], gaps: list[str]) -> None:
    found = ablation_of(arms)
    assert found is not None
    assert found.gaps == gaps


@pytest.mark.parametrize("arms", [["a", "b"], ["base", "b"], ["+a", "+b"], ["base", "+"]])
def test_other_comparisons_are_no_ablation(arms: Sequence[str]) -> None:
    assert ablation_of(arms) is None


def test_without_the_baseline_first_no_uncertainty_is_claimed() -> None:
    rows = _cells(ablation(_comparison({"+a": 1.3, "base": 1.0}, first="+a")))
    assert rows[1][4:] == ["unknown", "90.0%", "base was not the first arm"]


PERCENTILES = {"p50": 1.0, "p90": 1.0, "p95": 1.0, "p99": 1.0}
WHOLE: dict[str, Any] = {
    "workload": {
        "arrivals": "poisson, 4/s",
        "description": {"input_tokens": PERCENTILES, "output_tokens": PERCENTILES},
    },
    "scenario": {"admission_limit": NOT_TOLD, "preemption_policy": "recompute"},
    "runs": [{"overall": {"completed": 3, "latency_ms": {"ttft": PERCENTILES, "e2el": PERCENTILES}}}],
}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("workload", "arrivals"), "arrival distribution"),
        (("workload", "description", "output_tokens", "p99"), "length distribution"),
        (("scenario", "admission_limit"), "admission limit"),
        (("scenario", "preemption_policy"), "preemption policy"),
        (("runs", 0, "overall", "latency_ms", "ttft", "p99"), "latency percentiles"),
    ],
)
def test_a_report_needs_all_five(path: Sequence[Any], name: str) -> None:
    assert missing(WHOLE) == []
    lacking = orjson.loads(orjson.dumps(WHOLE))
    *before, last = path
    place: Any = lacking
    for step in before:
        place = place[step]
    del place[last]
    assert missing(lacking) == [name]


def test_what_was_not_told_is_there_and_named() -> None:
    assert not_told(WHOLE) == ["admission_limit"]
    nothing_completed = orjson.loads(orjson.dumps(WHOLE))
    nothing_completed["runs"][0]["overall"] = {"completed": 0, "latency_ms": {}}
    assert missing(nothing_completed) == [], "there are no percentiles of nothing"


def test_tandems_gateway_tells_its_conditions() -> None:
    workers = [{"engine": "vllm", "engine_version": "1", "device": "cpu"}] * 2
    status = {"limits": {"max_queued": 9, "queue_s": 60.0, "preemption": "recompute"}, "workers": workers}
    told = conditions_of(status)
    assert (told["engine"], told["preemption_policy"]) == ("vllm", "recompute")
    assert "at most 9 wait, for 60 s" in told["admission_limit"]
    others: list[Any] = [{}, None, [], {"limits": {}}, {"workers": 3, "limits": 4}]
    assert [conditions_of(other) for other in others] == [{}] * len(others)
