"""What the validity benchmark counts: points, causes, the knee, and that its limits can be missed."""

import subprocess
import sys
from array import array
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest

from benchmarks import validity
from benchmarks.fidelity import WORKLOAD, alone
from benchmarks.validity import exact
from benchmarks.validity.cell import Case, Cell, cell
from benchmarks.validity.contest import LAYOUTS, LOADS, Question
from benchmarks.validity.served import Served, decode_pace, measure_served, prompt_line, slowdown
from benchmarks.validity.table import HEAD, exactness, explained, row
from benchmarks.validity.virtual import Virtual, boundary
from engine.simulated.cost.linear import LinearCost
from engine.simulated.cost.table import read_table, write_table
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.experiment import Experiment
from loadgen.result import Ending, Result
from loadgen.slo.policy import build_policy
from loadgen.workload.family import fixed
from loadgen.workload.spec import Catalogue
from tests.engine.simulated.cost.test_profile_pair import table
from tests.waiting import HANG_S

CASE = Case("1P1D", "--prefill 1 --decode 1", "knee", 2.0)
POLICY = build_policy(["ttft:100 tpot:20"])


def answer(index: int, ttft_ms: float = 50, tpot_ms: float = 10, ending: Ending = Ending.COMPLETED) -> Result:
    first_s = index + ttft_ms / 1e3
    return Result(
        index,
        intended_s=float(index),
        sent_s=float(index),
        end_s=first_s + tpot_ms / 100,
        ending=ending,
        first_s=first_s,
        output_tokens=11,
        chunk_s=array("d"),
    )


def compared(truth: list[Result], simulated: list[Result]) -> Cell:
    return cell(CASE, truth, simulated, POLICY)


GOOD = [answer(index) for index in range(20)]


def test_equal_sides_are_no_points_apart() -> None:
    same = compared(GOOD, GOOD)
    assert (same.points, same.good, same.within(0)) == (0.0, (20, 20), True)
    assert [one.ratio for one in same.rows] == [1.0, 1.0]


def test_every_bad_request_has_a_cause_on_each_side() -> None:
    truth = [answer(0, ttft_ms=200), answer(1, tpot_ms=30), answer(2, 200, 30), *GOOD[3:]]
    simulated = [answer(0, ttft_ms=200), *GOOD[1:19], answer(19, ending=Ending.REJECTED)]
    found = compared(truth, simulated)
    assert found.missed == (Counter({"ttft": 1, "tpot": 1, "ttft+tpot": 1}), Counter({"ttft": 1, "rejected": 1}))
    assert found.only_truth == Counter({"tpot": 1, "ttft+tpot": 1})
    assert found.only_simulated == Counter({"rejected": 1})
    assert found.points == pytest.approx(5.0)


def test_the_order_in_which_answers_ended_does_not_matter() -> None:
    assert compared(GOOD[::-1], GOOD).points == 0.0


def test_sides_that_were_asked_other_requests_are_not_compared() -> None:
    with pytest.raises(ValueError, match="not asked the same"):
        compared(GOOD, GOOD[1:])


def test_a_cell_outside_its_limit_is_marked_and_explained() -> None:
    off = compared([answer(0, tpot_ms=30), answer(1, ttft_ms=200), *GOOD[2:]], GOOD)
    assert "**+10.0**" in row("real", off, 5.0)
    assert "bad in truth alone: 1 tpot, 1 ttft; bad in the simulation alone: none" in explained("real", off, 5.0)
    assert explained("real", off, 10.0) == ""
    assert row("real", off, 10.0).count("|") == HEAD.splitlines()[0].count("|")


@pytest.mark.parametrize("edge", [0.3, 1.0, 7.3, 900.0])
def test_the_boundary_is_found_wherever_it_is(edge: float) -> None:
    found = boundary(lambda rate: rate <= edge)
    assert edge / 1.02 <= found <= edge


def test_limits_that_nothing_keeps_have_no_boundary() -> None:
    with pytest.raises(ValueError, match="no rate is low enough"):
        boundary(lambda rate: False)


@pytest.mark.slow
def test_rates_and_limits_come_from_virtual_time_and_the_knee_is_where_attainment_breaks() -> None:
    experiment = Experiment(fixed(200, 20), Arrivals(Kind.POISSON, rate=1.0), seed=1, count=20)
    virtual = Virtual("toy")
    question = Question.of(dict.fromkeys(LAYOUTS, virtual), experiment, 1.2, ["1 colocated"])
    assert [case.load for case in question.cases] == list(LOADS)
    _, knee, above = question.of_layout("1 colocated")
    assert virtual.attainment(knee.words, experiment.schedule(knee.rate), question.policy) >= 0.85
    assert virtual.attainment(above.words, experiment.schedule(above.rate * 4), question.policy) < 0.9
    assert question.policy == virtual.limits(knee.words, experiment.schedule(), 1.2)


def test_an_engine_is_slower_while_a_neighbour_computes_and_only_then(tmp_path: Path) -> None:
    """Not by the mean over a run: a limit near the slow ones would be missed by half of the answers and not by a tenth."""
    tables = (tmp_path / "shared.json", tmp_path / "lonely.json")
    for path, sharing in zip(tables, ({"decode": 1.5, "prefill": 1.5}, {}), strict=True):
        write_table(replace(table(), sharing=sharing), path)
    experiment = Experiment(fixed(100, 20), Arrivals(Kind.POISSON, rate=1.0), seed=1, count=10)

    def longer(words: str, rate: float) -> list[float]:
        """How many times as long as without sharing each request took."""
        beside, alone = (Virtual(f"file:{one}").results(words, experiment.schedule(rate)) for one in tables)
        return [slow.e2e_s / quick.e2e_s for slow, quick in zip(beside, alone, strict=True)]

    assert longer("--colocated 2", 0.01) == pytest.approx([1.0] * 10)
    assert longer("--colocated 1", 100.0) == pytest.approx([1.0] * 10)
    some = longer("--colocated 2", 1.0)
    assert min(some) == pytest.approx(1.0)
    assert 1.2 < max(some) < 1.6


def test_a_served_pair_is_held_against_itself_request_by_request() -> None:
    one = [replace(answer(index, ttft_ms=100, tpot_ms=20), prompt_tokens=64) for index in range(9)]
    two = [replace(answer(index, ttft_ms=110, tpot_ms=26), prompt_tokens=64) for index in range(8)]
    assert slowdown(one, two) == pytest.approx({"prefill": 1.1, "decode": 1.3})
    assert slowdown(one, two, overhead_s=0.02) == pytest.approx({"prefill": 1.125, "decode": 1.3})
    assert slowdown(two, one) == {"prefill": 1.0, "decode": 1.0}


def test_requests_too_short_to_time_a_step_say_nothing_of_a_neighbour() -> None:
    short = [answer(0)]
    with pytest.raises(ValueError, match="long enough"):
        slowdown(short, short)


def handed(index: int, sent_s: float, ttft_s: float, gaps_s: list[float]) -> Result:
    """An answer whose second token waits for the hand-off."""
    times = [*accumulate([0.09, *gaps_s], initial=sent_s + ttft_s)]
    return replace(
        answer(index),
        intended_s=sent_s,
        sent_s=sent_s,
        first_s=times[0],
        end_s=times[-1],
        prompt_tokens=64,
        output_tokens=len(times),
        chunk_s=array("d", times),
    )


def test_in_a_split_pair_only_what_meets_the_other_kind_of_step_is_beside_a_neighbour() -> None:
    """A prompt that waited for another one tells of a line, and a step beside nobody, or beside another answer, of nothing."""
    one = [handed(index, 10.0 * index, 0.1, [0.02] * 12) for index in range(4)]
    answering = handed(0, 0.0, 0.1, [0.02] * 5 + [0.03] * 4 + [0.02] * 3)
    beside = handed(1, 0.289, 0.125, [0.02] * 12)
    waited = [handed(2, 20.0, 0.1, [0.02] * 12), handed(3, 20.05, 0.1, [0.02] * 12)]
    found = slowdown(one, [answering, beside, *waited], split=True)
    assert found == pytest.approx({"prefill": 1.125, "decode": 1.5})
    assert slowdown(one, [answering, beside, *waited], split=True, overhead_s=0.02)["prefill"] == pytest.approx(1.15625)


def test_first_tokens_of_a_served_pair_are_a_line_over_those_of_virtual_time() -> None:
    """What comes on top whatever the prompt, and how many times as long its steps take; one that was held up bends nothing."""
    virtual = [answer(index, ttft_ms=40 * (index + 1)) for index in range(9)]
    live = [answer(index, ttft_ms=12 + 1.1 * 40 * (index + 1)) for index in range(9)]
    assert prompt_line(live, virtual) == pytest.approx((0.012, 1.1))
    late = [*live[:4], answer(4, ttft_ms=900), *live[5:]]
    assert prompt_line(late, virtual) == pytest.approx((0.012, 1.1))
    quick = [answer(index, ttft_ms=1.1 * 40 * (index + 1) - 8) for index in range(9)]
    overhead_s, factor = prompt_line(quick, virtual)
    assert overhead_s == 0.0
    assert 1.0 < factor < 1.1


def test_prompts_that_are_all_alike_tell_no_line() -> None:
    with pytest.raises(ValueError, match="too much alike"):
        prompt_line(GOOD, GOOD)


def test_the_steps_of_an_answer_are_held_against_the_table_without_its_hand_off() -> None:
    cost = LinearCost(base_s=0.02, token_s=0.0, context_token_s=0.0, token_pair_s=0.0)
    live = [handed(0, 0.0, 0.1, [0.022] * 12), handed(1, 9.0, 0.1, [0.5])]
    assert decode_pace(live, cost) == pytest.approx(1.1)
    with pytest.raises(ValueError, match="long enough"):
        decode_pace(live[1:], cost)


def test_virtual_time_pays_what_a_served_pair_was_measured_to_pay(tmp_path: Path) -> None:
    """A request alone: the overhead once, and each kind of step so many times as long."""
    measured = tmp_path / "pair.json"
    write_table(table(), measured)
    served = Served(0.05, {"prefill": 2.0, "decode": 3.0}, {"prefill": 1.2, "decode": 1.1})
    served.write(tmp_path / "served.json")
    assert Served.read(tmp_path / "served.json") == served
    plain, paid = Virtual(f"file:{measured}", 0.0), served.virtual(measured, tmp_path / "out.json")
    schedule = alone(Experiment(fixed(70, 12), Arrivals(Kind.POISSON, rate=1.0), seed=2, count=3).schedule(), 3)
    for words in ("--prefill 1 --decode 1", "--colocated 2"):
        for before, after in zip(plain.results(words, schedule), paid.results(words, schedule), strict=True):
            assert before.ttft_s is not None
            assert after.ttft_s == pytest.approx(0.05 + 2 * before.ttft_s)
    for before, after in zip(
        plain.results("--colocated 1", schedule), paid.results("--colocated 1", schedule), strict=True
    ):
        assert before.tpot_s is not None
        assert after.tpot_s == pytest.approx(3 * before.tpot_s, rel=1e-3)
    assert read_table(tmp_path / "out.json").sharing == served.sharing


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--colocated 2", "--prefill 1 --decode 1"])
async def test_a_pair_is_served_and_tells_what_that_adds(words: str, tmp_path: Path) -> None:
    measured = tmp_path / "pair.json"
    write_table(table(), measured)
    asked = Experiment(Catalogue().mix([WORKLOAD]), Arrivals(Kind.POISSON, rate=1.0), seed=2, count=4)
    found = await measure_served(words, f"--engine simulated --profile file:{measured}", asked, measured)
    assert set(found.pace) == set(found.sharing) == {"decode", "prefill"}
    assert found.overhead_s >= 0.0
    assert min(found.sharing.values()) >= 1.0
    paid = found.virtual(measured, tmp_path / "out.json").results(words, asked.schedule())
    assert [each.ending for each in paid] == [Ending.COMPLETED] * 4


def test_random_cases_are_counted_as_the_tests_report_them() -> None:
    assert exact.cases("  - 400 passing, 0 failing, and 25 invalid\n") == 400
    assert exact.passed("120 passed in 3.1s\n") == 120
    assert (exact.cases("no tests ran"), exact.passed("no tests ran")) == (0, 0)


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (exact.Exact(400, 120, failed=False), True),
        (exact.Exact(400, 39, failed=False), False),
        (exact.Exact(400, 120, failed=True), False),
    ],
)
def test_too_few_cases_or_a_difference_is_a_miss(found: exact.Exact, holds: bool) -> None:
    assert found.holds is holds
    assert ("NOT EQUAL" in exactness(found)) is found.failed


@pytest.mark.slow
def test_the_whole_command_with_a_simulated_engine_for_the_real_one() -> None:
    words = ["--engine", "--engine simulated --profile toy", "--options", "", "--parts", "live", "--profile", "toy"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.validity", *words, "--requests", "12", "--workload", "fixed isl=200 osl=20"],
        cwd=Path(validity.__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * HANG_S,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout.count("| live |") == len(LAYOUTS) * len(LOADS)
