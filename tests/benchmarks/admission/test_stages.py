"""Mooncake's setting in small: prefill takes 20 s with room for all, decode 40 s in 80 slots, and twice as many arrive
as decode can take. The rules of the comparison do there what the paper reports."""

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean, pstdev

import numpy as np
import pytest

from benchmarks.admission.rejection import correlation
from benchmarks.admission.stages import PREDICTED, PRESENT, STAGE_WISE, Ahead, Stages
from gateway.policy.rejection import Accept, Ask, Bounds

ARRIVALS_PER_S, PREFILL_S, DECODE_S, SLOTS = 4, 20, 40, 80
ASK, BOUNDS = Ask(decode_load=1 / SLOTS), Bounds()


@dataclass(slots=True)
class Course:
    """By second. `coming` and `running`: when each prompt reaches decode, and leaves it."""

    coming: deque[int] = field(default_factory=deque)
    running: deque[int] = field(default_factory=deque)
    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    finished: int = 0
    thrown_away: int = 0

    def ahead(self, now_s: int) -> Ahead:
        starts = [0.0] * len(self.running) + [float(at_s - now_s) for at_s in self.coming]
        ends = [float(at_s - now_s) for at_s in self.running] + [float(at_s - now_s + DECODE_S) for at_s in self.coming]
        return Ahead(float(PREFILL_S), float(DECODE_S), np.array(starts), np.array(ends), np.full(len(ends), 1 / SLOTS))

    @property
    def overloaded(self) -> int:
        return sum(running > SLOTS for running in self.decode)


def course(stages: Stages, seconds: int = 600) -> Course:
    own = Course()
    for now_s in range(seconds):
        while own.running and own.running[0] <= now_s:
            own.running.popleft()
            own.finished += 1
        while own.coming and own.coming[0] <= now_s:
            own.coming.popleft()
            judge = stages.before_decode
            if judge is None or isinstance(judge(BOUNDS, ASK, own.ahead(now_s)), Accept):
                own.running.append(now_s + DECODE_S)
            else:
                own.thrown_away += 1
        for _ in range(ARRIVALS_PER_S):
            if isinstance(stages.before_prefill(BOUNDS, ASK, own.ahead(now_s)), Accept):
                own.coming.append(now_s + PREFILL_S)
        own.prefill.append(len(own.coming))
        own.decode.append(len(own.running))
    return own


@pytest.mark.slow
def test_r15_only_stage_wise_throws_prefills_away() -> None:
    assert course(STAGE_WISE).thrown_away > 100
    assert course(PRESENT).thrown_away == course(PREDICTED).thrown_away == 0


def test_predicted_load_neither_overloads_decode_nor_leaves_it_idle() -> None:
    found = course(PREDICTED)
    assert found.overloaded == 0
    assert fmean(found.decode[100:]) == pytest.approx(SLOTS, rel=0.05)


@pytest.mark.slow
def test_present_load_swings_in_antiphase_and_predicted_load_does_not() -> None:
    """What the Mooncake paper reports, in quality: the swing is gone, and with it the overload and the idle time."""
    present, predicted = course(PRESENT), course(PREDICTED)
    assert correlation(np.array(present.prefill[100:]), np.array(present.decode[100:]), 0) < -0.5
    assert pstdev(present.decode[100:]) > 0.3 * SLOTS
    assert pstdev(predicted.decode[100:]) < 0.05 * SLOTS
    assert present.overloaded > 50
    assert predicted.finished > present.finished


def test_correlation_is_of_the_one_with_what_the_other_is_later() -> None:
    beat = np.sin(np.arange(200) * 2 * np.pi / 20)
    assert correlation(beat, beat, 10) == pytest.approx(-1.0)
    assert correlation(beat, np.roll(beat, 5), 5) == pytest.approx(1.0)
    assert correlation(beat, np.ones(200), 0) == 0.0
