"""Where answers that leave for want of KV find room: at workers that do not lean, in an emergency where there is some now."""

from dataclasses import replace

import pytest

from gateway.policy.fleet import Link
from gateway.request.observer import Moved
from tests.gateway.request.crowd import BALANCE, MOVE, Answers, Cluster, overruns

pytestmark = pytest.mark.usefixtures("at_once")


def test_a_worker_that_leans_to_prefill_is_the_emptiest_and_stays_so() -> None:
    """R-26 under fluid roles: it computes prompts for the others."""
    cluster = Cluster()
    one, answers = overruns(cluster, BALANCE, leaning=("d1",)), Answers()
    with one.watching(answers):
        cluster.told(2, held=90)
        cluster.changed()
        assert not answers.sent


def test_a_full_worker_that_leans_gives_like_any_other() -> None:
    cluster = Cluster()
    one, answers = overruns(cluster, BALANCE, leaning=("d0",)), Answers()
    with one.watching(answers):
        cluster.told(2, held=90)
        cluster.changed()
        assert [order.worker_id for order in answers.sent.values()] == ["d1"]


@pytest.mark.parametrize(("room", "target"), [(100, "d2"), (9, "d1")])
def test_what_is_short_moves_to_a_worker_that_leans_only_where_no_other_has_room(room: int, target: str) -> None:
    cluster = Cluster()
    third = cluster._worker("d2")
    cluster.told(1, held=100 - room, worker=third)
    third.state = replace(third.state, pool_blocks_used=0)
    cluster.workers = lambda: [cluster.full, cluster.empty, third]  # type: ignore[method-assign]  # replaced for the test
    cluster.pairs.links["d2"] = {"d0": Link("tcp", 1e6)}
    one, answers = overruns(cluster, MOVE, leaning=("d1",)), Answers()
    with one.watching(answers):
        cluster.told(2, held=105)
        cluster.changed()
        assert {order.worker_id for order in answers.sent.values()} == {target}


def test_in_an_emergency_room_now_is_room() -> None:
    """All of the other worker is promised, and nearly all is free."""
    for policy, moves in ((MOVE, 1), (BALANCE, 0)):
        cluster = Cluster()
        cluster.empty.headroom_blocks = 0
        one, answers = overruns(cluster, policy), Answers()
        with one.watching(answers):
            cluster.told(2, held=105)
            cluster.changed()
            assert len(answers.sent) == moves


def test_a_worker_that_draws_on_its_pool_helps_where_it_has_room() -> None:
    cluster = Cluster()
    cluster.empty.state = replace(cluster.empty.state, pool_blocks=90, pool_blocks_used=90)
    one, answers = overruns(cluster, MOVE), Answers()
    with one.watching(answers):
        cluster.told(2, held=105)
        cluster.changed()
        assert len(answers.sent) == 1


def test_kv_that_is_being_read_elsewhere_is_as_good_as_free() -> None:
    """Or a second answer would leave for the same shortage."""
    cluster = Cluster()
    one, answers = overruns(cluster, MOVE), Answers()
    with one.watching(answers):
        cluster.told(2, held=105)
        cluster.changed()
        assert len(answers.sent) == 1
        answers.going = set(answers.sent)
        cluster.told(3, held=105)
        cluster.changed()
        assert len(answers.sent) == 1
        answers.going = set()
        answers.ended |= set(answers.sent)
        cluster.told(4, held=105)
        cluster.changed()
        assert len(answers.sent) == 2


def test_who_has_refused_is_asked_again_when_it_has_spoken() -> None:
    cluster = Cluster()
    one, answers = overruns(cluster, MOVE), Answers()
    with one.watching(answers):
        cluster.told(2, held=105)
        cluster.changed()
        (first,) = answers.sent
        del answers.sent[first]
        one.moved(Moved(str(first), "overrun", "refused", "transfer", "d0", "d1", 7, {}))
        cluster.told(3, held=105)
        cluster.changed()
        assert not answers.sent
        cluster.told(2, held=0, worker=cluster.empty)
        cluster.told(4, held=105)
        cluster.changed()
        assert len(answers.sent) == 1
