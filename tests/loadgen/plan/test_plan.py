"""The race, its ranking, and what is said of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from loadgen.failure import InterruptedEarlyError, LoadgenError
from loadgen.plan.bottleneck import Resource as Limit
from loadgen.plan.bottleneck import bottleneck_of
from loadgen.plan.candidate import Candidate, Engine, Family, Part
from loadgen.plan.crew import INTERRUPTED, Crew
from loadgen.plan.document import plan_document
from loadgen.plan.files import write_plan
from loadgen.plan.layout_document import layout_text, read_layout
from loadgen.plan.plan import Asked, Planned, make_plan
from loadgen.plan.question import Question
from loadgen.plan.race import Race, Stage, Standing
from loadgen.plan.ranking import rank, unreached, verdict
from loadgen.plan.space import Gpus, Space, candidates
from loadgen.plan.trial import Task, accounted, measure, observe
from loadgen.plan.words import Words, asked, gpu_groups, thresholds_of
from loadgen.slo.policy import build_policy
from loadgen.workload.spec import Catalogue
from proto.worker import Role
from tests.loadgen.plan.asking import APART, BRIEF, COLOCATED, MIXED, PROFILE, QUICK, question, standing


def test_the_rate_found_holds_and_the_one_above_does_not() -> None:
    asked = question()
    found = measure(Task(COLOCATED, asked, BRIEF, (0.9,), 5.0, 200.0)).highest[0]
    assert observe(COLOCATED, asked, found.rate, 0, BRIEF, 0.9).holds(0.9)
    assert not observe(COLOCATED, asked, found.above, 0, BRIEF, 0.9).holds(0.9)
    assert found.above <= found.rate * 1.3


def test_a_layout_that_fails_at_the_floor_costs_one_simulation() -> None:
    report = measure(Task(COLOCATED, question(), BRIEF, (0.9,), 5.0, 1000.0, floor=900.0))
    assert report.given_up
    assert report.simulations == 1


@pytest.mark.slow
def test_a_whole_plan() -> None:
    space = Space((Gpus(PROFILE, 2),), most_pp=1)
    asked = Asked(
        question(), space, ("kv=fp8",), marginal=False, running=APART, prices=((PROFILE, 3.0),), halving=QUICK
    )
    steps: list[tuple[str, int, int]] = []
    with Crew(1) as crew:
        planned = make_plan(asked, crew, lambda *step: steps.append(step))
    last = {stage: (done, total) for stage, done, total in steps}
    assert list(last)[-2:] == ["what limits", "what-ifs"]
    for stage in ("bounds", "what limits", "what-ifs"):
        assert last[stage][0] == last[stage][1] > 1
    assert not planned.incomplete
    assert planned.winner.candidate.family is Family.COLOCATED  # prompts need both GPUs
    assert "do not disaggregate" in planned.verdict.lower()
    assert planned.running is not None  # looked at, though far behind
    assert planned.bottlenecks[0][1].resource is Limit.COMPUTE
    assert planned.answered[0].changed[0].after is not None
    document = plan_document(planned)
    assert sum(document["stages"].values()) == document["layouts"] == len(planned.standings)
    first = document["ranking"][0]
    hours = first["cost"]["gpu_hours_per_1000_good"]
    assert hours == pytest.approx(2 / 3600 / (planned.winner.rate * 0.9) * 1000)
    assert first["cost"]["price_per_1000_good"] == pytest.approx(3.0 * hours)
    assert 0 < first["share_of_bound"] <= 1
    assert document["asked"]["prices_per_gpu_hour"] == {PROFILE: 3.0}
    assert document["running"]["place"] == planned.running.place
    assert document["running"]["changes"]
    best = next(s for s in planned.standings if s.candidate == planned.winner.candidate)
    # Equal lengths: nothing is cheaper than the mean. A quick look goes up in steps of 7 %, by runs of some hundred requests.
    assert planned.winner.rate <= best.served_ps * 1.1


def test_no_time_gives_a_partial_plan_or_a_reason() -> None:
    asked = Asked(question(), Space((Gpus(PROFILE, 2),)), halving=QUICK)
    ticks = iter(range(10_000))
    crew = Crew(1, budget_s=1.0, clock=lambda: float(next(ticks)))
    with crew, pytest.raises(LoadgenError, match="no layout was measured"):
        make_plan(asked, crew, lambda stage, done, total: None)


def test_a_plan_that_was_cut_short_says_so_before_its_advice_and_in_the_layout(tmp_path: Path) -> None:
    rows = tuple(rank([standing(COLOCATED, [10.0]), standing(APART, [9.0])], (0.9,)))
    asked, late = Asked(question(), Space((Gpus(PROFILE, 2),))), standing(MIXED, [], Stage.UNTRIED)
    standings = (standing(COLOCATED, [10.0]), standing(APART, [9.0]), late)
    found = (COLOCATED, APART, MIXED)
    planned = Planned(asked, found, rows, standings, (), (), (), (), "the time is up", 1.0, 1, 1)
    assert planned.verdict.startswith("No last word, as 2 of 3 layouts were looked at. No advice: colocated and")
    assert planned.verdict.endswith("none of the 1 mixed layouts was reached in the time there was.")
    write_plan(planned, tmp_path)
    assert f"# Cut short (the time is up). {planned.verdict}\n" in (tmp_path / "layout.yaml").read_text()
    write_plan(replace(planned, incomplete=""), tmp_path)
    assert "ut short" not in (tmp_path / "layout.yaml").read_text()


def test_a_plan_says_what_there_was_to_look_at() -> None:
    """Of one GPU it said that no split had held the limits, and when cut short "No last word, as 6 of 6 were looked at"."""
    rows = tuple(rank([standing(COLOCATED, [10.0])], (0.9,)))
    asked = Asked(question(), Space((Gpus(PROFILE, 1),)))
    alone = Planned(asked, (COLOCATED,), rows, (standing(COLOCATED, [10.0]),), (), (), (), (), "", 1.0, 1, 1)
    none = "Do not disaggregate: there is no layout of these GPUs with two pools."
    assert alone.verdict == none
    cut = replace(alone, incomplete=INTERRUPTED)
    assert cut.verdict == f"No last word, as the search did not come to its end. {none}"
    both = replace(alone, found=(COLOCATED, APART), standings=(standing(COLOCATED, [10.0]), standing(APART, [])))
    assert both.verdict == "Do not disaggregate: no split of these GPUs held the limits."


def test_ctrl_c_before_anything_was_measured_is_no_wrong_usage() -> None:
    asked = Asked(question(), Space((Gpus(PROFILE, 2),)), halving=QUICK)
    crew = Crew(1)
    crew.stopped = INTERRUPTED
    with crew, pytest.raises(InterruptedEarlyError, match="no layout was measured: interrupted"):
        make_plan(asked, crew, lambda stage, done, total: None)


class Raced:
    """A race that is over."""

    def __init__(self, *_: object) -> None:
        self.standings = [standing(COLOCATED, [10.0]), standing(APART, [9.0])]
        self.keep, self.late, self.simulations, self.requests = None, False, 2, 100

    def run(self, found: object) -> None:
        pass


def test_ctrl_c_while_it_is_explained_keeps_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search of minutes was lost: what limits the winner is looked for outside the crew."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("loadgen.plan.plan.Race", Raced)
    monkeypatch.setattr("loadgen.plan.plan._bottleneck", interrupted)
    with Crew(1) as crew:
        planned = make_plan(
            Asked(question(), Space((Gpus(PROFILE, 2),)), ("kv=fp8",), halving=QUICK), crew, lambda *_: None
        )
    assert (planned.incomplete, planned.winner.candidate) == (INTERRUPTED, COLOCATED)
    assert (planned.bottlenecks, planned.worth) == ((), ())


def test_kv_goes_over_the_network_where_nodes_are_as_small_as_was_said() -> None:
    """`--gpus-per-node` bounded degrees alone: pools on two nodes exchanged over NVLink all the same."""
    words = Words(model=PROFILE, gpus="2", workload=["fixed isl=4000 osl=2"], goodput=["ttft:300"])
    inside, across = (asked(replace(words, gpus_per_node=count)).question for count in (8, 1))
    schedule, _ = inside.schedule(1.0, 0, BRIEF)
    near, far = (dict(one.layout(APART).simulate(schedule).results[0].stages_s) for one in (inside, across))
    assert far["transfer"] > 2 * near["transfer"] > 0


def test_limits_that_nothing_holds_have_a_reason() -> None:
    asked = Asked(question(goodput="ttft:1 tpot:30"), Space((Gpus(PROFILE, 1),)), halving=QUICK)
    with Crew(1) as crew, pytest.raises(LoadgenError, match="miss the TTFT limit"):
        make_plan(asked, crew, lambda stage, done, total: None)


def test_a_lead_within_its_interval_is_no_difference() -> None:
    noisy = rank([standing(APART, [10.2, 9.9, 10.3]), standing(COLOCATED, [10.0, 10.0, 10.0])], (0.9,))
    assert noisy[1].tied
    assert verdict(noisy).startswith("No difference shown")
    assert "do not disaggregate" in verdict(noisy)
    clear = rank([standing(APART, [13.0, 13.1, 13.2]), standing(COLOCATED, [10.0, 10.1, 10.2])], (0.9,))
    assert not clear[1].tied
    assert verdict(clear).startswith("Disaggregated: the best colocated layout is 22.9 %")
    reverse = rank([standing(APART, [10.0, 10.1, 10.2]), standing(COLOCATED, [13.0, 13.1, 13.2])], (0.9,))
    assert verdict(reverse).startswith("Do not disaggregate: the best disaggregated layout is 22.9 %")


def test_a_layout_that_was_looked_at_for_less_long_is_not_told_as_one_that_holds_nothing() -> None:
    """A search that its budget had cut short read as advice to disaggregate."""
    shorter = rank([standing(APART, [10.0] * 3), standing(COLOCATED, [8.0], Stage.SCREEN)], (0.9,))
    assert verdict(shorter) == (
        "Disaggregated: no colocated layout was looked at as long in the time there was; the best by a shorter look is 20.0 % behind."
    )
    other = rank([standing(COLOCATED, [10.0] * 3), standing(APART, [11.0], Stage.SCREEN)], (0.9,))
    assert "ahead, which a shorter look does not show" in verdict(other)
    alone = rank([standing(APART, [10.0] * 3)], (0.9,))
    assert verdict(alone) == "Disaggregated: no colocated layout held the limits."


def test_one_run_each_is_no_advice_and_no_difference_either() -> None:
    """A plan that was cut short told of a split that was 48 % behind in one run that no difference was shown."""
    for ahead, other, names in (
        (COLOCATED, APART, ("colocated", "disaggregated")),
        (APART, COLOCATED, ("disaggregated", "colocated")),
    ):
        rows = rank([standing(ahead, [10.0], Stage.SCREEN), standing(other, [5.2], Stage.SCREEN)], (0.9,))
        assert verdict(rows) == (
            f"No advice: {names[0]} and {names[1]} layouts had one run each in the time there was, too few to show "
            f"anything; in it the best {names[1]} one is 48.0 % behind."
        )


def test_a_family_that_no_time_was_left_for_has_not_lost() -> None:
    """A search that had reached colocated layouts alone said "Do not disaggregate: no split held the limits"."""
    found = [COLOCATED, APART, MIXED]

    def said(*standings: Standing) -> str:
        rows = rank(standings, (0.9,))
        return verdict(rows, unreached(found, standings, rows))

    won, failed = standing(COLOCATED, [10.0] * 3), standing(APART, [], Stage.FLOOR)
    mixed = standing(MIXED, [], Stage.BOUND)
    assert said(won, standing(APART, [], Stage.UNTRIED)) == (
        "No advice: none of the 1 disaggregated layouts was reached in the time there was; none of the 1 mixed layouts was "
        "reached in the time there was. The best of those that were is colocated."
    )
    assert said(standing(APART, [9.0] * 3), mixed).startswith("No advice: none of the 1 colocated layouts")
    assert said(won, failed, mixed) == "Do not disaggregate: no split of these GPUs held the limits."
    assert said(won, failed).startswith(
        "Do not disaggregate: no split of these GPUs held the limits. Of mixed ones nothing"
    )
    found.append(replace(APART, local_below=100))
    assert "1 of the 2 disaggregated layouts were not reached in the time there was, and no other" in said(
        won, failed, mixed
    )


def test_time_that_ends_with_the_bounds_has_gone_to_every_family() -> None:
    looks = iter([0.0] * 10)
    crew = Crew(1, budget_s=1.0, clock=lambda: next(looks, 1.0))
    with crew:
        standings = Race(question(), crew, QUICK).run(candidates(Space((Gpus(PROFILE, 4),)))[0])
    assert {one.candidate.family for one in standings[:3]} == set(Family)


def test_layouts_that_came_farther_go_first() -> None:
    rows = rank([standing(APART, [12.0], Stage.SCREEN), standing(COLOCATED, [10.0], Stage.FINAL)], (0.9,))
    assert rows[0].candidate is COLOCATED


def test_a_layout_document_reads_back_as_what_it_was(tmp_path: Path) -> None:
    file = tmp_path / "layout.yaml"
    for candidate in (COLOCATED, APART):
        file.write_text(layout_text(candidate, ("a comment",)))
        assert read_layout(file, PROFILE, 256) == candidate


def test_two_colocated_kinds_have_no_document() -> None:
    twice = Candidate((*COLOCATED.parts, Part(Role.BOTH, 1, Engine(f"{PROFILE}?gib=96"))))
    with pytest.raises(LoadgenError, match="one pool of each role"):
        layout_text(twice)


def test_gpus_in_words() -> None:
    assert gpu_groups("8", PROFILE) == (Gpus(PROFILE, 8),)
    mixed = gpu_groups("4x h200-sxm + 2x h200-sxm?gib=96@2.5", PROFILE)
    assert mixed == (Gpus(PROFILE, 4), Gpus(f"{PROFILE}?gib=96", 2, 2.5))
    for bad in ("0", "eight", "4x h200-sxm + 4x h200-sxm", "-1"):
        with pytest.raises(LoadgenError, match="gpus:"):
            gpu_groups(bad, PROFILE)


def test_thresholds_follow_the_prompts() -> None:
    assert thresholds_of(question().sample) == (16, 993)


@pytest.mark.parametrize("limits", ["ttft:0", ""])
def test_limits_that_a_simulation_cannot_judge_are_refused(limits: str) -> None:
    with pytest.raises(LoadgenError):
        Question(Catalogue().mix(["azure-conv"]), build_policy([limits]))


@pytest.mark.slow
def test_limits_on_gaps_between_tokens_count_in_a_plan() -> None:
    """A step of an 8B model takes some 5 ms alone and about 25 beside a prompt of 1,000."""
    for limits, good in (("itl_p50:2", False), ("itl_p50:50", True), ("itl_max:8", False)):
        asked = question(goodput=limits)
        assert asked.gaps
        assert observe(COLOCATED, asked, 20.0, 0, BRIEF, 0.9).holds(0.9) is good, limits
    assert not question().gaps


def test_a_place_that_waits_for_its_prompt_is_the_prompts_fault() -> None:
    """KV looks neither full nor empty then; what tells is that those who hold it are not computed yet."""
    candidate = Candidate((Part(Role.PREFILL, 1, Engine(PROFILE)), Part(Role.DECODE, 1, Engine(PROFILE, seqs=64))), 16)
    asked = question("fixed isl=4000 osl=200", "ttft:400 tpot:40")
    seen = accounted(candidate.layout(), candidate, asked, 30.0, BRIEF)
    assert seen.uncomputed > 0.5
    found = bottleneck_of(seen)
    assert (found.resource, found.where) == (Limit.COMPUTE, "prefill")


def test_prompts_that_wait_at_their_engine_wait_for_no_place() -> None:
    """A wait for the engine that computes prompts counted as one for KV of the decode worker, which had plenty."""
    candidate = Candidate((Part(Role.PREFILL, 1, Engine(PROFILE)), Part(Role.DECODE, 1, Engine(PROFILE))), 16)
    asked = question("fixed isl=4000 osl=20", "ttft:400 tpot:40")
    seen = accounted(candidate.layout(), candidate, asked, 22.0, BRIEF)
    assert max(j.result.line_s for j in seen.judged) < 1e-9
    found = bottleneck_of(seen)
    assert found.stages_s["queue"] > found.stages_s["prefill"]
    assert (found.resource, found.where) == (Limit.COMPUTE, "prefill")
    assert "0.00 s of that in the gateway's line" in found.evidence


def test_who_computes_prompts_is_asked_where_the_time_goes_into_prompts() -> None:
    """The busiest engine that may compute prompts was the one that decodes for all."""
    candidate = Candidate((Part(Role.PREFILL, 2, Engine(PROFILE)), Part(Role.BOTH, 1, Engine(PROFILE))), 16)
    asked = question("fixed isl=4000 osl=250", "ttft:250 tpot:40")
    found = bottleneck_of(accounted(candidate.layout(), candidate, asked, 20.0, BRIEF))
    prefill, both = found.pools
    assert found.stages_s["prefill"] > max(found.stages_s["queue"], found.stages_s["decode_queue"])
    assert both.busy > prefill.busy
    assert found.where == "prefill"
