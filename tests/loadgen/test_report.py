"""The summary keeps its published schema; pages stand alone; regressions are found."""

import copy
import csv
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has no types
import pytest
from rich.console import Console

from loadgen.arms.base import Observation
from loadgen.arms.url import ClientSettings
from loadgen.arms.virtual import VirtualArm
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.cli.arms import arm
from loadgen.cli.options import ClientOptions
from loadgen.client.telemetry import Point, Telemetry
from loadgen.experiment import Experiment, scale_sweep
from loadgen.failure import LoadgenError
from loadgen.measure.cost import Price
from loadgen.measure.interval import wilson
from loadgen.report import files
from loadgen.report.baseline import changes
from loadgen.report.console import show
from loadgen.report.curves import figures
from loadgen.report.document import Scenario, document, search_document
from loadgen.report.page import page
from loadgen.report.svg import Axis, Line, chart, standalone
from loadgen.report.terminal import terminal
from loadgen.result import Ending
from loadgen.search import Answer, Probe
from loadgen.slo.policy import build_policy
from loadgen.trial import Trial
from loadgen.workload.family import fixed
from tests.loadgen.build import result

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def _schema(name: str) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = json.loads((SCHEMAS / name).read_text())
    return loaded


def _trial(arm: str, rate: float, slow: float = 1.0, repetition: int = 0) -> Trial:
    experiment = _experiment()
    schedule = experiment.schedule(rate, repetition)
    results = [
        result(p.index, at=p.at_s, first=slow * (0.1 + 0.01 * (p.index % 7)), gaps=[0.01 * slow] * 4, klass='<&">')
        for p in schedule.requests[:-3]
    ]
    n = len(schedule.requests)
    results += [
        result(n - 3, at=1, first=None, ending=Ending.REJECTED, reason="queue_full", klass="b"),
        result(n - 2, at=1, first=None, ending=Ending.ABANDONED, reason="patience", end_after=2),
        result(n - 1, at=1, first=0.1, ending=Ending.CANCELLED),
    ]
    telemetry = Telemetry([Point(float(i), {"kv": 0.1 * i, "queue": i, "preemptions": float(i)}) for i in range(5)])
    observation = Observation(tuple(results), True, telemetry, ("a note",), {"version": "1.2"}, "m")
    measures = experiment.judge(observation, schedule, 2)
    scales = tuple(scale_sweep(experiment, observation, schedule))
    return Trial(arm, "http://x", 2, rate, repetition, schedule, observation, measures, scales)


def _experiment() -> Experiment:
    return Experiment(
        fixed(10, 5), Arrivals(Kind.POISSON), build_policy(["ttft:150 tpot:20"]), duration_s=20, price=Price(3.5, "x")
    )


def _document(*trials: Trial, **more: Any) -> dict[str, Any]:
    return document(
        "run",
        _experiment(),
        trials,
        config={"command": "run"},
        scenario=Scenario({"precision": "bf16"}),
        started=datetime.now(UTC),
        **more,
    )


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    answer = Answer(0.9, 4.0, 4.2, 3.5, None)
    found = search_document("pd", 2, [Probe(4.0, 0.95, wilson(95, 100))], [answer], 0.1, 100)
    return _document(
        *(_trial(arm, rate, slow) for arm, slow in (("pd", 1), ("colo", 1.4)) for rate in (2, 4)), searches=[found]
    )


def test_summary_keeps_its_published_schema(data: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(_schema("loadgen-summary-1.json")).validate(data)
    json.dumps(data, allow_nan=False)


def test_figures_of_the_summary_add_up(data: dict[str, Any]) -> None:
    for run in data["runs"]:
        counts = run["overall"]["counts"]
        assert sum(counts.values()) == run["overall"]["offered"]
        assert run["cancelled"] == 1
        assert run["overall"]["abandoned"] == 1
        assert run["goodput"]["requests_ps"] == pytest.approx(counts["good"] / run["duration_s"], rel=1e-3)
        assert run["cost"]["gpu_hours"] == pytest.approx(2 * run["duration_s"] / 3600, abs=1e-6)
        assert run["telemetry"]["counts"]["preemptions"] == 4
        assert run["telemetry"]["peaks"]["kv"] == pytest.approx(0.4)


def test_scenario_says_what_was_not_stated(data: dict[str, Any]) -> None:
    assert data["scenario"]["precision"] == "bf16"
    assert data["scenario"]["model"] == "m"
    assert data["scenario"]["admission_limit"] == "not told by the target"
    assert data["scenario"]["server_version"] == "1.2"


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("simulated", "2 ranks, no GPU"),
        ("cpu", "2 ranks, no GPU"),
        ("h200_sxm", "2 GPU"),
        ("cuda / simulated", "2 GPU"),
    ],
)
def test_ranks_that_stand_on_no_gpu_are_not_called_gpus(data: dict[str, Any], node: str, said: str) -> None:
    """A toy fleet had "(4 GPU)"."""
    told = data | {"scenario": data["scenario"] | {"node": node}}
    console = Console(file=StringIO(), width=200)
    show(console, told)
    assert isinstance(console.file, StringIO)
    printed = console.file.getvalue()
    assert printed.count(f"({said})") == len(data["runs"]) + len(data["searches"])


def test_a_class_whose_name_looks_like_markup_is_shown_as_it_is(
    data: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace says what its classes are called, and after hours of a run the command ended with a traceback."""
    told = {**copy.deepcopy(data), "kind": "run"}
    group = next(iter(told["runs"][0]["by_bucket"].values()))
    told["runs"][0]["by_class"] = {"[/b]": group, "[red]:bug:": group}
    show(terminal(), told)
    shown = capsys.readouterr().out
    assert "[/b]" in shown
    assert "[red]:bug:" in shown


def test_in_virtual_time_the_node_is_what_the_profile_is_of() -> None:
    settings = (ClientOptions(), ClientSettings())
    words = ("--colocated 2", "--profile h200-sxm/llama-3.1-8b --colocated 1")
    devices = [arm("a", f"sim:{each}", None, *settings) for each in words]
    assert [one.device for one in devices if isinstance(one, VirtualArm)] == ["simulated", "h200_sxm"]


def test_request_records_keep_their_schema(tmp_path: Path) -> None:
    trial = _trial("pd", 3)
    files.save(tmp_path, _document(trial), [trial], gaps=True)
    validator = jsonschema.Draft202012Validator(_schema("loadgen-request-1.json"))
    rows = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    for row in rows:
        validator.validate(row)
    assert len(rows) == len(trial.observation.results)
    assert rows[0]["ttft_ms"] == pytest.approx(100)
    assert rows[0]["token_gaps_ms"] == pytest.approx([10] * 4)
    assert [r["verdict"] for r in rows[-3:]] == ["rejected", "timed_out", "cancelled"]
    with (tmp_path / "summary.csv").open() as table:
        (line,) = csv.DictReader(table)
    assert line["arm"] == "pd"
    assert int(line["offered"]) == len(rows) - 1
    assert files.load(tmp_path)["runs"][0]["arm"] == "pd"


def test_other_files_are_refused(tmp_path: Path) -> None:
    for text, cause in (("{}", "not a summary"), ("{", "not JSON")):
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(LoadgenError, match=cause):
            files.load(tmp_path)
    with pytest.raises(LoadgenError, match="no such file"):
        files.load(tmp_path / "none.json")


class _Balance(HTMLParser):
    """Every opened tag is closed, in order."""

    VOID = frozenset({"meta", "line", "circle", "polyline", "br", "i"})

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.stack.pop() == tag


def test_page_stands_alone_and_is_well_formed(data: dict[str, Any]) -> None:
    text = page(data)
    parser = _Balance()
    parser.feed(text)
    assert parser.stack == []
    assert parser.links == []
    assert not re.search(r"url\(|@import|<script", text)
    assert '<&">' not in text, "labels are escaped"
    for word in (
        "Attainment against rate",
        "TTFT, distribution",
        "KV occupancy over time",
        "not told by the target",
        "offered",
    ):
        assert word in text


def test_no_figure_is_cut_on_80_columns() -> None:
    trials = [_trial(arm, rate, slow) for arm, slow in (("disaggregated", 1.0), ("dp8", 30.0)) for rate in (8.0, 112.5)]
    for kind in ("run", "compare"):
        console = Console(file=StringIO(), width=80, highlight=False)
        show(console, {**_document(*trials), "kind": kind})
        assert isinstance(console.file, StringIO)
        said = console.file.getvalue()
        assert "runs\n" in said.replace(" ", "")
        assert "…" not in said
        assert max(map(len, said.splitlines())) <= 80


def test_charts_can_be_saved_on_their_own(data: dict[str, Any]) -> None:
    drawn = figures(data)
    assert len(drawn) >= 8
    for title, svg, labels in drawn:
        assert svg.count("<polyline") in (len(labels), 2 * len(labels))
        assert "nan" not in svg.lower()
        whole = standalone(title, svg, labels)
        assert "<style>" in whole
        assert all(escape(label) in whole for label in (title, *labels))


@pytest.mark.parametrize("points", [[(1.0, 5.0)], [(0.0, 0.0), (1.0, 0.0)], [(1.0, 1e-9), (2.0, 1e9)]])
def test_charts_of_odd_data_are_drawn(points: list[tuple[float, float]]) -> None:
    for log in (True, False):
        assert "<svg" in chart("t", Axis("x"), Axis("y", log=log), [Line("a", points, dots=True)])
    assert chart("t", Axis("x"), Axis("y"), []) == ""


def test_regressions_are_found_run_by_run() -> None:
    before, same, slower = (_document(_trial("pd", 3, slow)) for slow in (1.0, 1.0, 1.3))
    assert not any(c.worse for c in changes(before, same, 0.05))
    worse = {c.figure for c in changes(before, slower, 0.1) if c.worse}
    assert {"attainment", "ttft p50, ms", "good requests/s per GPU"} <= worse
    assert not any(c.worse for c in changes(slower, before, 0.1)), "better is not worse"
    other = copy.deepcopy(before)
    other["runs"][0]["rate"] = 9.0
    with pytest.raises(LoadgenError, match="no run in common"):
        changes(before, other, 0.1)
    with pytest.raises(LoadgenError, match="tolerance"):
        changes(before, same, 1.5)


def test_lower_searched_rates_are_regressions() -> None:
    documents = [
        _document(
            _trial("pd", 3), searches=[search_document("pd", 2, [], [Answer(0.9, low, None, None, None)], 0.1, 9)]
        )
        for low in (4.0, 3.0)
    ]
    assert [c.figure for c in changes(documents[0], documents[1], 0.1) if c.worse] == ["highest rate at 90%"]
