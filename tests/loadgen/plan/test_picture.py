"""Several plans in one picture."""

from pathlib import Path
from xml.etree import ElementTree

import orjson
import pytest

from loadgen.plan.document import SCHEMA
from loadgen.plan.picture import decision, main


def plan(workload: str, *rows: tuple[str, str, float]) -> dict[str, object]:
    ranking = [{"layout": name, "family": kind, "rate_ps_per_gpu": {"0.9": r, "0.99": r / 2}} for name, kind, r in rows]
    return {
        "schema": SCHEMA,
        "asked": {"workload": workload, "slo": ["all: ttft:500 tpot:50"]},
        "verdict": "Do not disaggregate: the best split is < 50 % behind.",
        "ranking": ranking,
    }


def test_each_traffic_shows_the_best_of_each_family_and_says_where_there_is_none() -> None:
    drawn = decision(
        [plan("code", ("7P + 1D", "disaggregated", 4.0), ("2C", "colocated", 3.0), ("1C", "colocated", 2.9))]
    )
    ElementTree.fromstring(drawn)
    assert "7P + 1D" in drawn
    assert "2C" in drawn
    assert "1C" not in drawn
    assert drawn.count("none measured") == 1
    assert "&lt; 50 % behind" in drawn


def test_what_is_no_plan_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "plan.json", tmp_path / "other.json"
    good.write_bytes(orjson.dumps(plan("code", ("2C", "colocated", 3.0))))
    bad.write_text("{}")
    assert main([str(good)]) == 0
    assert capsys.readouterr().out.startswith("<svg")
    assert main([str(good), str(bad)]) == 2
    assert "other.json is not a plan.json" in capsys.readouterr().err
