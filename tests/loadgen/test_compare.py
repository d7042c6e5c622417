"""Verdicts say what the repetitions support, and no more."""

from dataclasses import dataclass, field, replace

import pytest

from loadgen.arms.base import Observation
from loadgen.arms.virtual import Simulated, VirtualArm
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.compare import cells, check_equal, comparison_document, contests, order, same_work, verdict
from loadgen.experiment import Experiment, attainment_of, scale_sweep
from loadgen.failure import LoadgenError
from loadgen.schedule import Schedule
from loadgen.slo.policy import build_policy
from loadgen.trial import Trial, run_trial
from loadgen.workload.family import fixed
from loadgen.workload.mix import Labels, Mix, Part
from tests.loadgen.build import result


@dataclass
class Layout:
    """Answers everything with one TTFT; `ttft` may depend on the seed."""

    ttft: dict[int, float]
    gpus: float = 2.0
    description: str = "fixed answers"
    seen: list[str] = field(default_factory=list)

    def simulate(self, schedule: Schedule) -> Simulated:
        self.seen.append(schedule.digest)
        first = self.ttft[schedule.seed]
        results = tuple(
            result(p.index, at=p.at_s, first=first + 0.001 * (p.index % 10), gaps=[0.01], klass=p.demand.klass)
            for p in schedule.requests
        )
        return Simulated(results, model="none")


def _experiment() -> Experiment:
    mix = Mix((Part(fixed(10, 2), labels=Labels(klass="a")), Part(fixed(10, 2), labels=Labels(klass="b"))))
    return Experiment(mix, Arrivals(Kind.POISSON), build_policy(["ttft:200"]), duration_s=20)


async def _trials(arms: list[VirtualArm], repeats: int) -> list[Trial]:
    return [await run_trial(_experiment(), arms[i], 5.0, r) for r in range(repeats) for i in order(len(arms), r)]


@pytest.mark.slow
async def test_a_clear_winner_is_named_with_its_margin() -> None:
    slow, fast = Layout({0: 0.196, 1: 0.195, 2: 0.1965}), Layout({0: 0.1, 1: 0.1, 2: 0.1})
    arms = [VirtualArm("colocated", slow), VirtualArm("pd", fast)]
    trials = await _trials(arms, 3)
    held = [c for c in contests(cells(trials), "colocated") if not c.klass]
    (c,) = held
    assert c.winner == "pd"
    assert c.difference.low > 0
    assert "pd wins" in verdict(c)
    assert same_work(trials)
    assert slow.seen[0] == fast.seen[0]


@pytest.mark.slow
async def test_equal_arms_get_no_winner() -> None:
    arms = [
        VirtualArm("x", Layout({0: 0.196, 1: 0.195, 2: 0.197})),
        VirtualArm("y", Layout({0: 0.195, 1: 0.197, 2: 0.196})),
    ]
    (c,) = [c for c in contests(cells(await _trials(arms, 3)), "x") if not c.klass]
    assert c.winner == ""
    assert "no difference shown" in verdict(c)


async def test_one_repetition_is_no_verdict() -> None:
    arms = [VirtualArm("x", Layout({0: 0.3})), VirtualArm("y", Layout({0: 0.1}))]
    (c,) = [c for c in contests(cells(await _trials(arms, 1)), "x") if not c.klass]
    assert c.winner == ""
    assert "nothing is known of the uncertainty" in verdict(c)


async def test_an_invalid_run_gives_no_winner() -> None:
    arms = [VirtualArm("x", Layout({0: 0.3, 1: 0.3})), VirtualArm("y", Layout({0: 0.1, 1: 0.1}))]
    trials = await _trials(arms, 2)
    trials[0] = replace(trials[0], measures=replace(trials[0].measures, invalid=("send lag",)))
    (c,) = [c for c in contests(cells(trials), "x") if not c.klass]
    assert (c.winner, c.valid) == ("", False)
    assert "no verdict, a run was invalid" in verdict(c)


@pytest.mark.slow
async def test_classes_are_compared_too() -> None:
    arms = [VirtualArm("x", Layout({0: 0.3, 1: 0.3})), VirtualArm("y", Layout({0: 0.1, 1: 0.1}))]
    trials = await _trials(arms, 2)
    data = comparison_document(trials, arms)
    assert {c["class"] for c in data["contests"]} == {"", "a", "b"}
    assert data["same_work"]
    assert data["first"] == "x"


def test_unequal_gpus_are_refused_unless_asked_for() -> None:
    two, four = VirtualArm("x", Layout({}, gpus=2)), VirtualArm("y", Layout({}, gpus=4))
    with pytest.raises(LoadgenError, match="unequal numbers of GPUs"):
        check_equal([two, four], allow_unequal=False)
    check_equal([two, four], allow_unequal=True)
    with pytest.raises(LoadgenError, match="same name"):
        check_equal([two, two], allow_unequal=False)
    with pytest.raises(LoadgenError, match="at least two"):
        check_equal([two], allow_unequal=False)


def test_runs_are_interleaved() -> None:
    assert [order(2, r) for r in range(4)] == [[0, 1], [1, 0], [1, 0], [0, 1]]
    assert [order(3, r) for r in range(3)] == [[0, 1, 2], [2, 1, 0], [1, 2, 0]]


async def test_slo_scale_sweeps_one_run() -> None:
    experiment = _experiment()
    arm = VirtualArm("x", Layout({0: 0.195}))
    schedule = experiment.schedule(5.0)
    observation: Observation = await arm.observe(schedule, 0)
    swept = dict(scale_sweep(experiment, observation, schedule))
    assert swept[0.5] == 0
    assert 0 < swept[1.0] < 1
    assert swept[1.5] == 1
    assert attainment_of(experiment.judge(observation, schedule, 2)) == swept[1.0]
