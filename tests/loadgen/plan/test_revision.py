"""A new plan against the layout that runs: a change is advised for a sure lead of the margin, and nothing else changes (R-63)."""

import json
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadgen.bound import Bound, Resource
from loadgen.failure import LoadgenError
from loadgen.measure.interval import Interval
from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.crew import INTERRUPTED
from loadgen.plan.duel import Duel, fought
from loadgen.plan.layout_document import read_layout
from loadgen.plan.plan import Asked, Planned, make_plan
from loadgen.plan.race import Stage, Standing
from loadgen.plan.ranking import Row
from loadgen.plan.replan import Terms, replan
from loadgen.plan.revision import Revision, difference, revised
from loadgen.plan.space import Gpus, Space
from loadgen.plan.trial import Report, Task, measure
from loadgen.plan.watching import Cause
from proto.worker import Role
from tests.loadgen.plan.asking import PROFILE, QUICK, TWICE, question

OLD = Candidate((Part(Role.BOTH, 2, Engine(PROFILE, tokens=2048)),))
NEW = Candidate((Part(Role.PREFILL, 1, Engine(PROFILE, tokens=2048)), Part(Role.DECODE, 1, Engine(PROFILE))), 129)
RUNNING = f"""
gateway: {{port: 8111}}
engine: {{profile: {PROFILE}, max_num_seqs: 64}}
layout:
  colocated: {{workers: 2, engine: {{max_num_batched_tokens: 4096, block_size_tokens: 32}}}}
"""


def row(candidate: Candidate, rate: float, behind: float | None = None, low: float = 0.0, high: float = 0.0) -> Row:
    spread = None if behind is None else Interval(low, high)
    rates, within = {0.9: rate}, {0.9: Interval(rate * 0.98, rate * 1.02)}
    return Row(1, candidate, Stage.FINAL, rates, within, 9.0, "compute", 1.0, 1.0, behind, spread, 0, 100)


def planned(*rows: Row, running: Candidate = OLD, stage: Stage = Stage.FINAL) -> Planned:
    asked = Asked(question(), Space((Gpus(PROFILE, 2),)), running=running)
    standing = Standing(running, Bound(1.0, Resource.COMPUTE, 0), 1.0, stage)
    return Planned(asked, (OLD, NEW), rows, (standing,), (), (), (), (), "", 1.0, 1, 1)


@pytest.mark.parametrize(
    ("behind", "low", "high", "advised", "said"),
    [
        (0.2, 0.1, 0.3, True, "Change: +25.0% (+12.5% to +37.5%)"),
        (0.2, -0.01, 0.41, False, "no difference shown"),
        (0.03, 0.02, 0.04, False, "within the margin"),
        (0.2, -inf, inf, False, "(too few runs of both for an interval) is not shown; a longer --budget"),
        (-0.1, -inf, inf, False, "within the margin"),
    ],
)
def test_a_change_needs_a_lead_of_the_margin_that_is_sure(
    behind: float, low: float, high: float, advised: bool, said: str
) -> None:
    found = Revision.of(planned(row(NEW, 10.0), row(OLD, 10.0 * (1 - behind), behind, low, high)), 0.05)
    assert found.advised is advised
    assert said in found.verdict
    assert json.loads(json.dumps(found.document()))["advised"] is advised


def test_a_duel_goes_before_what_the_search_found() -> None:
    """Its seeds are others: the search chose the best of many by its own."""
    searched = planned(row(NEW, 10.0), row(OLD, 8.0, 0.2, 0.1, 0.3))
    level = Revision.of(searched, 0.05, Duel((8.0, 9.0, 10.0), (8.1, 8.9, 10.0)))
    ahead = Revision.of(searched, 0.05, Duel((8.0, 9.0, 10.0), (9.0, 10.0, 11.1)))
    assert (level.advised, ahead.advised) == (False, True)
    assert ahead.lines()[1].endswith("5.02 requests/s per GPU at 90%, 3.71 to 6.32")
    assert ahead.gain == pytest.approx(30.1 / 27 - 1)


def test_the_best_layout_is_kept() -> None:
    found = Revision.of(planned(row(OLD, 10.0), row(NEW, 9.0, 0.1, 0.05, 0.15)), 0.0)
    assert not found.advised
    assert found.verdict == "Keep: the running layout is the best one found."


def test_a_layout_that_holds_the_limits_no_more_is_changed_and_one_that_was_not_looked_at_is_not() -> None:
    failed = Revision.of(planned(row(NEW, 10.0), stage=Stage.SCREEN), 0.05)
    unknown = Revision.of(planned(row(NEW, 10.0), stage=Stage.UNTRIED), 0.05)
    assert (failed.advised, unknown.advised) == (True, False)
    assert "does not hold the limits" in failed.verdict
    assert unknown.lines()[0] == "now: not looked at"


def test_both_goodputs_are_told_with_their_intervals() -> None:
    now, new, _ = Revision.of(planned(row(NEW, 10.0), row(OLD, 8.0, 0.2, 0.1, 0.3)), 0.05).lines()
    assert now == "now: 2C TP1/2048: 4 requests/s per GPU at 90%, 3.92 to 4.08"
    assert new.endswith("local <129: 5 requests/s per GPU at 90%, 4.9 to 5.1")


def test_what_a_plan_does_not_decide_stays(tmp_path: Path) -> None:
    before = yaml.safe_load(RUNNING)
    after = revised(before, NEW)
    assert after["gateway"] == {"port": 8111, "routing": {"local_prefill_below_tokens": 129}}
    assert set(after["layout"]) == {"prefill", "decode"}
    more = revised(before, replace(OLD, parts=(replace(OLD.parts[0], workers=3),)))
    assert more["layout"]["colocated"]["engine"]["block_size_tokens"] == 32
    assert more["layout"]["colocated"]["engine"]["max_num_batched_tokens"] == 2048
    assert before == yaml.safe_load(RUNNING)
    file = tmp_path / "layout.yaml"
    file.write_text(yaml.safe_dump(after))
    assert read_layout(file, PROFILE, 256) == NEW


@pytest.mark.parametrize("profile", [f", profile: {PROFILE}", ""])
def test_where_pools_stand_is_not_planned_and_stays(tmp_path: Path, profile: str) -> None:
    """It was dropped, and where no profile is named, as for real engines, there was no new document at all."""
    before = yaml.safe_load(
        f"engine: {{max_num_seqs: 64{profile}}}\n"
        "layout: {near: zone, gpus_per_node: 4, tp_across_nodes: true, colocated: {workers: 2}}"
    )
    after = revised(before, NEW)
    said = {name: after["layout"][name] for name in ("near", "gpus_per_node", "tp_across_nodes")}
    assert said == {"near": "zone", "gpus_per_node": 4, "tp_across_nodes": True}
    assert "colocated" not in after["layout"]
    file = tmp_path / "layout.yaml"
    file.write_text(yaml.safe_dump(after))
    assert read_layout(file, PROFILE, 256).parts[0].role is Role.PREFILL


def test_the_difference_is_that_of_the_document() -> None:
    before = yaml.safe_load(RUNNING)
    same = difference(before, revised(before, read_back(before)))
    assert [line for line in same if line[0] in "+-" and "profile" not in line and "tp:" not in line] == []
    lines = difference(before, revised(before, NEW))
    assert any(line == "-  colocated:" for line in lines)
    assert any(line == "+  prefill:" for line in lines)


def read_back(document: dict[str, Any]) -> Candidate:
    """The layout that the document says."""
    assert document["layout"]["colocated"]["workers"] == 2
    return Candidate((Part(Role.BOTH, 2, Engine(PROFILE, tokens=4096, seqs=64)),))


def test_a_document_for_real_engines_gets_no_profile_and_one_with_stages_says_them() -> None:
    real = {"engine": {"model": "/srv/m", "pp": 2}, "layout": {"colocated": {"workers": 1}}}
    after = revised(real, NEW)
    assert all("profile" not in pool["engine"] for pool in after["layout"].values())
    assert {pool["engine"]["pp"] for pool in after["layout"].values()} == {1}


def replanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, margin: float = 0.0) -> Any:
    running = tmp_path / "running.yaml"
    running.write_text(RUNNING)
    asked = Asked(
        question(),
        Space((Gpus(PROFILE, 2),)),
        marginal=False,
        running=read_layout(running, PROFILE, 256),
        halving=QUICK,
    )

    def quick(asked: Asked, *_: object) -> Planned:
        from loadgen.plan.crew import Crew

        with Crew(1) as crew:
            return make_plan(asked, crew, lambda *_: None)

    monkeypatch.setattr("loadgen.plan.replan.searched", quick)
    monkeypatch.setattr(
        "loadgen.plan.replan.fought",
        lambda found, jobs, left_s: fought(found, jobs, left_s, replace(TWICE, first_seed=7)),
    )
    terms = Terms(margin, headroom=0.1, jobs=1, budget_s=None, quiet=True)
    return replan(asked, running, Cause("answers are shorter"), tmp_path / "out", 3.0, terms)


@pytest.mark.slow
def test_a_replan_leaves_the_document_and_what_led_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dueling: list[Task] = []

    def noted(task: Task) -> Report:
        dueling.append(task)
        return measure(task)

    monkeypatch.setattr("loadgen.plan.duel.measure", noted)
    done = replanned(tmp_path, monkeypatch)
    written = json.loads((tmp_path / "out" / "revision.json").read_bytes())
    assert written["cause"] == "lengths: answers are shorter; rate: not known from before"
    assert written["changed"]["drift"] == "answers are shorter"
    assert written["load"]["rate_ps"] == 3.0
    assert done.lines[3].startswith(
        f"load: 3 requests/s, {written['load']['share_of_now']:.0%} of what the running layout"
    )
    assert done.lines[4] == written["load"]["verdict"]
    assert written["now"]["rate_ps_per_gpu"] > 0
    assert written["plan"]["schema"] == "tandem-plan/1"
    assert done.planned.running is not None
    assert done.planned.running.stage is Stage.FINAL  # held against the winner on the same seeds
    assert isfinite(done.revision.gain)
    assert read_layout(done.layout, PROFILE, 256) == done.planned.winner.candidate
    assert written["difference"] == done_difference(done.layout)
    if not done.revision.same:
        seeds = {task.effort.first_seed for task in dueling}
        assert seeds == {7, 8}  # not those of the search


def done_difference(layout: Path) -> list[str]:
    return difference(yaml.safe_load(RUNNING), yaml.safe_load(layout.read_text()))


def test_ctrl_c_during_the_duel_ends_the_plan_and_leaves_what_the_search_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch took it for a duel without time, could apply the change, and went on."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    found = planned(row(NEW, 10.0), row(OLD, 8.0, 0.2, 0.1, 0.3))
    monkeypatch.setattr("loadgen.plan.replan.searched", lambda *_: found)
    monkeypatch.setattr("loadgen.plan.duel.measure", interrupted)
    running = tmp_path / "running.yaml"
    running.write_text(RUNNING)
    terms = Terms(0.05, headroom=0.1, jobs=1, budget_s=None, quiet=True)
    done = replan(found.asked, running, Cause("answers are shorter"), tmp_path / "out", 3.0, terms)
    assert (done.planned.incomplete, done.lines[0]) == (INTERRUPTED, "cut short (interrupted)")
    assert json.loads((tmp_path / "out" / "revision.json").read_bytes())["plan"]["incomplete"] == INTERRUPTED


@pytest.mark.slow
def test_a_document_that_is_gone_ends_with_a_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = read_layout

    def gone(path: Path, *rest: Any) -> Candidate:
        found = read(path, *rest)
        path.unlink()
        return found

    monkeypatch.setitem(globals(), "read_layout", gone)
    with pytest.raises(LoadgenError, match="cannot read"):
        replanned(tmp_path, monkeypatch)
