"""The contest on a few seconds of traffic: what it measures is what happened."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.admission.begun import BEGUN, begun
from benchmarks.admission.contenders import CONTENDERS
from benchmarks.admission.contest import Cell, Contest, mean_of, trial
from benchmarks.admission.fleet import Service
from benchmarks.admission.mind import Mind
from benchmarks.admission.table import course, markdown
from benchmarks.admission.trial import Figures, Window, schedule
from benchmarks.admission.workloads import Workload
from gateway.config import GatewayConfig
from gateway.policy.bid import Bid
from gateway.policy.control.plan import Asked
from gateway.policy.estimate import Features, FinishedBy
from gateway.policy.prefix import PrefixKey
from loadgen.workload.spec import Catalogue

SHORT = Workload("azure-conv", "azure-conv", 5.0, Window(1.0, 4.0))
MIX = Catalogue(None).mix(["natural-reasoning"])


@pytest.mark.slow
def test_every_rule_serves_light_traffic_in_full() -> None:
    contest = Contest(SHORT, Service())
    for name in CONTENDERS:
        cell = Cell(name, 1.0, 1)
        contest.figures[cell] = trial(SHORT, Service(), cell)
    assert {round(each.good_share, 6) for each in contest.figures.values()} == {1.0}
    assert markdown(contest).count("100.0%") >= len(CONTENDERS)


@pytest.mark.slow
def test_answers_under_way_are_met_in_proportion_to_their_length() -> None:
    found = begun(MIX, 1.5, 0.04, 1e9, 1)
    plain = np.mean([chain[0].output_tokens for chain in MIX.draw(20_000, np.random.default_rng(1))])
    totals = [demand.total_tokens for demand in found]
    assert len(found) == pytest.approx(1.5 * plain * 0.04, rel=0.05)
    assert np.mean(totals) > 1.2 * plain
    assert np.mean([demand.output_tokens for demand in found]) == pytest.approx(np.mean(totals) / 2, rel=0.15)


def test_answers_under_way_stop_at_the_kv_they_may_fill() -> None:
    assert sum(demand.prompt_tokens for demand in begun(MIX, 10.0, 0.04, 100_000, 1)) <= 100_000


def test_a_schedule_is_arrivals_on_top_of_what_has_begun() -> None:
    planned = schedule("natural-reasoning", 1.0, 20.0, 3)
    fresh = [one for one in planned.requests if one.demand.klass != BEGUN]
    assert all(one.at_s == 0.0 for one in planned.requests if one.demand.klass == BEGUN)
    assert 8 <= len(fresh) <= 35
    assert [one.index for one in planned.requests] == list(range(len(planned.requests)))


@pytest.fixture(scope="module")
def base() -> Figures:
    return trial(SHORT, Service(), Cell("oracle", 1.0, 1))


def test_goodput_by_time_of_arrival_is_that_of_the_whole_window(base: Figures) -> None:
    assert len(base.course) == 5
    assert np.mean(base.course[1:]) == pytest.approx(base.goodput)
    contest = Contest(SHORT, Service(), {Cell("oracle", 1.0, 1): base})
    half = replace(base, course=tuple(part / 2 for part in base.course))
    contest.figures[Cell("mean", 1.0, 1)] = half
    contest.figures[Cell("mean", 1.0, 2)] = base  # of a seed that the oracle has not run
    assert course(contest).count("100.0%") == course(contest).count("50.0%") == 5


def test_what_a_fleet_serves_is_counted_as_it_is_generated(base: Figures) -> None:
    """Whoever asked for it, and whatever becomes of it: in light traffic, the tokens of the answers."""
    assert base.served == pytest.approx(base.good_tokens, rel=0.5)
    assert base.served_per_kv == pytest.approx(base.served / base.kv_used)


def test_a_store_tells_windows_apart(base: Figures, tmp_path: Path) -> None:
    store, cell = tmp_path / "store", Cell("oracle", 1.0, 1)
    first = Contest(SHORT, Service())
    first.remember(store)
    first.figures[cell] = base
    first.keep(cell)
    same, other = Contest(SHORT, Service()), Contest(replace(SHORT, window=Window(1.0, 9.0)), Service())
    for contest in (same, other):
        contest.remember(store)
    assert same.figures == {cell: base}
    assert other.figures == {}


def test_shares_are_paired_by_seed(base: Figures) -> None:
    contest = Contest(SHORT, Service())
    for seed, goodput in ((1, 10.0), (2, 30.0)):
        contest.figures[Cell("oracle", 1.0, seed)] = replace(base, goodput=goodput)
        contest.figures[Cell("mean", 1.0, seed)] = replace(base, goodput=goodput / 2)
    share = contest.share_of("mean", 1.0)
    assert share is not None
    assert share.value == pytest.approx(0.5)
    assert share.half == pytest.approx(0.0)


def test_a_cold_start_is_judged_by_its_first_minutes() -> None:
    later = replace(SHORT, first=Window(0.0, 2.0))
    assert later.at_first().window == Window(0.0, 2.0)
    assert SHORT.at_first() == SHORT


def test_interval_of_five_is_students() -> None:
    assert mean_of([1.0, 2.0, 3.0, 4.0, 5.0]).half == pytest.approx(2.776 * np.sqrt(2.5 / 5))


def asked(effort: str = "") -> Asked:
    return Asked(Features("m", 100, effort=effort), 1, 777, True, window=4_096, kv_tokens=16_000)


def mind(exact: bool = False) -> Mind:
    return Mind(GatewayConfig(), lambda: 0.0, exact=exact)


def test_only_the_oracle_is_told_how_long_answers_get() -> None:
    blind, told, begun_before = mind().plan(asked()), mind(exact=True).plan(asked()), mind().plan(asked(BEGUN))
    assert blind.limit_tokens == 4_096 - 100
    assert 777 not in blind.lengths
    assert set(told.lengths) == set(begun_before.lengths) == {777}
    assert blind.kin
    assert told.kin == begun_before.kin == 0  # or the newest would count for all of them


def test_nothing_is_learnt_of_what_had_begun_before() -> None:
    subject = mind()
    for effort, known in ((BEGUN, 0), ("", 1)):
        plan = subject.plan(asked(effort))
        subject.answered(Bid("r", plan.need, PrefixKey((), ""), 1, plan=plan), 777, FinishedBy.STOP)
        assert sum(view.observations for view in subject.lengths.classes() if not view.key) == known
