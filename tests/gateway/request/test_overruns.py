"""Answers that are capped, or move, when KV runs out or is uneven: as many as it takes, and no more."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gateway.policy.admission.move import By
from gateway.policy.control.controller import Controller
from gateway.policy.estimate import Features
from gateway.policy_config import PolicyConfig
from gateway.request.moving import Why
from gateway.request.observer import Moved
from gateway.request.overruns import Overruns
from tests.gateway.request.crowd import BALANCE, CAP_LATER, MOVE, NEITHER, POLICY, Answers, Cluster, overruns

pytestmark = pytest.mark.usefixtures("at_once")


def test_one_shortage_is_not_answered_again_before_the_worker_has_spoken_again() -> None:
    cluster = Cluster()
    one, answers = overruns(cluster, POLICY), Answers()
    with one.watching(answers):
        cluster.told(1, held=105)
        cluster.changed()
        first = len(answers.ended)
        assert 0 < first < 5
        for _ in range(10):
            cluster.changed()  # the capped ones leave, others come
        assert len(answers.ended) == first
        cluster.told(2, held=105)
        cluster.changed()
        assert len(answers.ended) > first


def test_answers_under_way_are_known_to_be_long_before_any_has_ended() -> None:
    cluster = Cluster()
    now_s = [0.0]
    controller = Controller(PolicyConfig(), lambda: now_s[0])
    one = Overruns(cluster, controller)  # type: ignore[arg-type]  # a stand-in, as above
    with one.watching(Answers()):
        before = controller.lengths.estimate(Features("m", 60)).quantile(0.1)
        cluster.changed()
        assert not controller.lengths.untold
        now_s[0] += 6.0
        assert controller.lengths.untold
        assert controller.lengths.estimate(Features("m", 60)).quantile(0.1) > before


def test_what_is_short_moves_to_where_it_will_fit_with_its_growth() -> None:
    cluster = Cluster()
    one, answers = overruns(cluster, MOVE), Answers()
    assert one.may_move
    assert cluster.answers_move(cluster.full)
    with one.watching(answers):
        cluster.told(1, held=115)  # 15 too many, and each holds 10
        cluster.changed()
        assert len(answers.sent) == 2
        order = next(iter(answers.sent.values()))
        assert (order.why, order.worker_id, order.by) == (Why.OVERRUN, "d1", By.TRANSFER)
        assert order.numbers["short_blocks"] == 15
        assert {"move_bytes", "move_s", "recompute_s"} <= set(order.numbers)
        for _ in range(3):
            cluster.changed()
        cluster.told(2, held=115)
        cluster.changed()
        assert len(answers.sent) == 2  # those that are on their way count as gone
        cluster.told(3, held=125)
        cluster.changed()
        assert len(answers.sent) == 3


def test_nothing_moves_to_a_worker_that_is_in_need_itself_or_has_no_room() -> None:
    for held in (100, 85):
        cluster = Cluster()
        one, answers = overruns(cluster, MOVE), Answers()
        cluster.told(1, held=held, worker=cluster.empty)
        with one.watching(answers):
            cluster.told(2, held=115)
            cluster.changed()
            assert not answers.sent


def test_a_pair_that_has_not_shaken_hands_computes_anew() -> None:
    cluster = Cluster()
    cluster.pairs.links = {}
    one, answers = overruns(cluster, MOVE), Answers()
    with one.watching(answers):
        cluster.told(2, held=105)
        cluster.changed()
        assert [order.by for order in answers.sent.values()] == [By.RECOMPUTE]


def test_what_cannot_move_stays() -> None:
    cluster = Cluster()
    one, answers = overruns(cluster, MOVE), Answers(frozenset())
    with one.watching(answers):
        cluster.told(2, held=115)
        cluster.changed()
        assert not answers.sent


def test_a_full_worker_gives_to_an_empty_one_one_answer_at_a_time() -> None:
    cluster = Cluster()
    one, answers = overruns(cluster, BALANCE), Answers()
    assert one.may_move
    with one.watching(answers):
        cluster.told(2, held=90)
        cluster.changed()
        assert [order.why for order in answers.sent.values()] == [Why.BALANCE]
        cluster.told(3, held=90)
        cluster.changed()
        assert len(answers.sent) == 1  # it has not arrived
        answers.ended |= set(answers.sent)
        cluster.told(4, held=90)
        cluster.changed()
        assert len(answers.sent) == 1  # the other has not said how it is since
        cluster.told(5, held=10, worker=cluster.empty)
        cluster.changed()
        assert len(answers.sent) == 2


def test_even_workers_are_left_alone_and_so_are_all_without_such_a_policy() -> None:
    for policy, held, other in ((BALANCE, 90, 65), (BALANCE, 75, 0), (NEITHER, 90, 0), (NEITHER, 105, 0)):
        cluster = Cluster()
        one, answers = overruns(cluster, policy), Answers()
        with one.watching(answers):
            cluster.told(2, held=held)
            cluster.told(2, held=other, worker=cluster.empty)
            cluster.changed()
            assert not answers.sent
    assert not overruns(Cluster(), NEITHER).may_move


def test_as_shipped_answers_leave_a_worker_that_runs_out_of_kv() -> None:
    cluster = Cluster()
    one, answers = overruns(cluster, {}), Answers()
    with one.watching(answers):
        cluster.told(2, held=105)
        cluster.changed()
        assert [order.why for order in answers.sent.values()] == [Why.OVERRUN]


def test_pairs_of_decode_workers_are_met_when_one_is_filling_and_not_all_at_the_start() -> None:
    cluster = Cluster()
    overruns(cluster, {})
    for held, pairs in ((49, False), (50, True)):
        cluster.told(2, held=held)
        assert cluster.answers_move(cluster.full) is pairs
    cluster.full.info = replace(cluster.full.info, hands_over=False)
    assert not cluster.answers_move(cluster.full)
    overruns(cluster, BALANCE)
    assert cluster.answers_move(cluster.empty)
    overruns(cluster, NEITHER)
    assert not cluster.answers_move(cluster.empty)


def test_what_became_of_moves_is_counted() -> None:
    one = overruns(Cluster(), MOVE)
    one.moved(Moved("r", "overrun", "moved", "transfer", "d0", "d1", 7, {}))
    assert one.moves == {("overrun", "moved"): 1}


@pytest.mark.parametrize("policy", [CAP_LATER, MOVE, BALANCE])
def test_a_look_that_nothing_came_of_is_not_repeated_with_every_lease_that_returns(policy: Mapping[str, Any]) -> None:
    """All answers are within their caps, and too large for the room there is."""
    cluster = Cluster()
    cluster.told(1, held=97, worker=cluster.empty)
    cluster.empty.state = replace(cluster.empty.state, blocks_used=10)  # the rest is promised
    one, answers = overruns(cluster, policy), Answers()
    cluster.told(2, held=105)
    with one.watching(answers):
        cluster.changed()
        looks = answers.looks
        for _ in range(5):
            cluster.changed()
        assert answers.looks == looks
        cluster.told(3, held=105)
        cluster.changed()
        assert answers.looks == looks + 1
        assert not answers.sent


@pytest.mark.parametrize("policy", [POLICY, MOVE, BALANCE])
@pytest.mark.parametrize("room", [0, 9])
def test_where_nothing_can_go_nobody_asks_how_long_answers_will_get(policy: Mapping[str, Any], room: int) -> None:
    """That takes milliseconds where there are hundreds of them, each of which holds 10 blocks."""
    cluster = Cluster()
    cluster.told(1, held=100 - room, worker=cluster.empty)
    cluster.empty.state = replace(cluster.empty.state, blocks_used=10)
    one, answers = overruns(cluster, policy), Answers(estimate=object())
    with one.watching(answers):
        cluster.told(2, held=105)
        cluster.changed()
        assert not answers.sent


def test_a_target_that_has_room_again_is_looked_at_at_once() -> None:
    cluster = Cluster()
    cluster.empty.blocks_free = 0
    one, answers = overruns(cluster, BALANCE), Answers()
    with one.watching(answers):
        cluster.told(2, held=90)
        cluster.changed()
        assert not answers.sent
        cluster.told(2, held=0, worker=cluster.empty)
        cluster.changed()
        assert len(answers.sent) == 1


def test_full_is_what_the_engine_has_in_use_and_not_what_is_promised() -> None:
    for used, moves in ((75, 0), (80, 1)):
        cluster = Cluster()
        one, answers = overruns(cluster, BALANCE), Answers()
        with one.watching(answers):
            cluster.told(2, held=used)
            cluster.full.blocks_free = 0
            cluster.changed()
            assert len(answers.sent) == moves
