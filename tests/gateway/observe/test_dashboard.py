"""The dashboard asks only for what the gateway exports."""

import json
import re

import pytest

from gateway.observe import dashboard
from gateway.observe.catalogue import CATALOGUE, Kind
from gateway.observe.dashboard import TARGET, render

_METRIC = re.compile(r"\btandem_\w+")


def test_the_dashboard_is_up_to_date() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(), "run: python -m gateway.observe.dashboard"


def test_every_series_and_label_exists_and_no_panel_covers_another() -> None:
    kinds = {spec.name + ("_bucket" if spec.kind is Kind.HISTOGRAM else ""): spec for spec in CATALOGUE}
    panels = json.loads(render())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        taken |= cells
        for target in panel.get("targets", ()):
            (name, *others) = dict.fromkeys(_METRIC.findall(target["expr"]))
            labels = set(kinds[name].labels)
            for each in others:
                labels &= set(kinds[each].labels)
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels


def test_a_panel_of_what_is_not_exported_is_an_error() -> None:
    with pytest.raises(KeyError):
        dashboard._rates("tandem_request_total")
    with pytest.raises(ValueError, match="reason") as caught:
        dashboard._values("tandem_policy_queue_length", "reason")
    assert "tandem_policy_queue_length" in str(caught.value)
