"""Alerts are of metrics that exist, with labels and values that they have: one with a slip never fires, and looks like health."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.cluster.states import PairState, WorkerStatus
from gateway.observe.catalogue import CATALOGUE
from gateway.request.errors import Reason
from gateway.request.phase import FINAL

RULES: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "deploy/alerts.yaml").read_text(encoding="utf-8")
)["groups"][0]["rules"]
LABELS = {spec.name: set(spec.labels) for spec in CATALOGUE}
VALUES: dict[tuple[str, str], set[str]] = {
    ("tandem_worker_status", "status"): {status.value for status in WorkerStatus},
    ("tandem_pair_state", "state"): {state.value for state in PairState},
    ("tandem_requests_total", "outcome"): {phase.value for phase in FINAL},
    ("tandem_requests_total", "reason"): {reason.value for reason in Reason},
}
_SERIES = re.compile(r"(tandem_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)=~?"([^"]*)"')
#: What Prometheus adds.
_GIVEN = {"instance"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    series = _SERIES.findall(rule["expr"])
    assert series
    for name, matchers in series:
        assert name in LABELS
        for label, values in _MATCHER.findall(matchers):
            assert label in LABELS[name]
            assert set(values.split("|")) <= VALUES[name, label]
    known = set.union(*(LABELS[name] for name, _ in series)) | _GIVEN
    for kept in re.findall(r"by \(([^)]*)\)", rule["expr"]):
        assert set(kept.replace(" ", "").split(",")) <= known
    text = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= set(
        re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", rule["expr"])))
    )
    for page in re.findall(r"docs/[\w-]+\.md", text):
        assert (Path(__file__).parents[2] / page).is_file()


def test_each_alert_has_a_name_of_its_own_and_says_how_bad_it_is() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    assert {rule["labels"]["severity"] for rule in RULES} <= {"critical", "warning", "info"}
    for rule in RULES:
        assert rule["expr"].count("(") == rule["expr"].count(")")
