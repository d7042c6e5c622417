"""The small model of the fleet, for a minute of it: nobody is lost, and nobody has more than there is."""

import pytest

from benchmarks.admission import ablation
from benchmarks.admission.ablation import ARMS, BLOCKS, Answer, Fleet
from gateway.policy.admission import Candidate
from gateway.policy.estimate import Estimate

BY_NAME = {arm.name: arm for arm in ARMS}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "START_S", 20.0)
    monkeypatch.setattr(ablation, "END_S", 80.0)


def test_a_worker_of_the_arm_as_shipped_knows_that_its_answers_can_leave() -> None:
    """Half of them had come to believe the contrary, for nobody had told them: it was not what is shipped."""
    worker = BY_NAME["as shipped"].worker()
    caution = worker.expected.caution
    caution.short_steps = caution.alone_after
    answer = Answer("r1", 100, 900, 0.0, known=True)
    worker.take(Candidate("r1", 100, Estimate.exactly(900), 900, 0), answer)
    worker.leave(answer)
    assert caution.accepted == caution.shipped


@pytest.mark.slow
@pytest.mark.parametrize("name", ["as shipped", "(f) oracle", "(e) Past-Future"])
def test_workers_have_what_their_books_have(name: str) -> None:
    fleet = Fleet(BY_NAME[name], 1, 1.3)
    found = fleet.run()
    for worker in fleet.workers:
        here = {answer.name for answer in (*worker.running, *worker.preempted)}
        assert {answer for answer in here if answer in worker.expected.book} == here
        assert len(worker.expected) == len(here)
        assert worker.used <= BLOCKS
    assert 0.8 < found.used < 1.0
    assert found.served > 1.0
    assert (found.moves == 0.0) or BY_NAME[name].moves
