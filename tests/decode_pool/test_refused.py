"""Who hears of room, and from when until when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decode_pool.ledger import Ledger, Load, Shape
from decode_pool.refused import KEPT_S, LONG_S, Refused
from proto.reservation import Refusal, RefusalReason, Reservation, ReserveRequest

GRANT = Reservation("w-1", 5, 30.0)


def refusal(reason: RefusalReason) -> Refusal:
    return Ledger(Shape(8, 16, 4, 1024), lambda: 0.0).refusal(reason, ReserveRequest("g", "r", 40, 40, 30.0), Load())


@pytest.fixture
def told() -> list[str]:
    return []


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refused(told: list[str], clock: Clock) -> Refused:
    made = Refused(clock)
    made.room = lambda: told.append("room")
    return made


@pytest.mark.parametrize("reason", [RefusalReason.KV_BUSY, RefusalReason.SLOTS_BUSY])
def test_whoever_found_no_room_hears_of_all_that_comes_free_until_a_grant(
    refused: Refused, told: list[str], reason: RefusalReason
) -> None:
    refused.answered("g", refusal(reason))
    refused.freed()
    refused.freed()
    assert len(told) == 2
    refused.answered("g", GRANT)
    refused.freed()
    assert len(told) == 2


@pytest.mark.parametrize("reason", [RefusalReason.NEVER_FITS, RefusalReason.DRAINING, RefusalReason.WRONG_ROLE])
def test_room_is_no_news_to_whoever_was_refused_for_something_else(
    refused: Refused, told: list[str], reason: RefusalReason
) -> None:
    refused.answered("g", refusal(reason))
    refused.freed()
    assert told == []


def test_a_grant_to_another_gateway_changes_nothing(refused: Refused, told: list[str]) -> None:
    refused.answered("g", refusal(RefusalReason.KV_BUSY))
    refused.answered("other", GRANT)
    refused.freed()
    assert told == ["room"]


def test_a_gateway_that_has_left_is_forgotten(refused: Refused) -> None:
    refused.answered("g", refusal(RefusalReason.KV_BUSY))
    refused.left("g")
    assert len(refused) == 0


def test_who_holds_much_leaves_what_comes_free_to_a_gateway_that_was_refused(refused: Refused) -> None:
    needed = refusal(RefusalReason.KV_BUSY).blocks_needed
    refused.answered("poor", refusal(RefusalReason.KV_BUSY))
    assert refused.others_first("rich", lambda: {"rich": needed})
    assert not refused.others_first(
        "rich", lambda: {"rich": needed - 1}
    )  # else they would take it from each other in turns
    assert not refused.others_first("poor", lambda: {"rich": needed})
    refused.answered("poor", GRANT)
    assert not refused.others_first("rich", lambda: {"rich": needed})


def test_room_is_kept_for_nobody_who_asks_no_more(refused: Refused, clock: Clock) -> None:
    refused.answered("poor", refusal(RefusalReason.KV_BUSY))
    clock.now_s = KEPT_S
    assert not refused.others_first("rich", lambda: {"rich": 100})


def test_who_has_waited_long_comes_first_however_little_the_others_hold(refused: Refused, clock: Clock) -> None:
    def both_ask() -> None:
        refused.answered("first", refusal(RefusalReason.KV_BUSY))
        if clock.now_s > 0:
            refused.answered("second", refusal(RefusalReason.KV_BUSY))

    while clock.now_s <= LONG_S + KEPT_S:
        both_ask()
        clock.now_s += KEPT_S / 2
    assert refused.others_first("newcomer", dict)
    assert refused.others_first("second", dict)
    assert not refused.others_first("first", dict)


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 15), min_size=1),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 20)),
)
def test_gateways_that_wait_never_all_leave_room_to_each_other(since: dict[str, int], held: dict[str, int]) -> None:
    clock, no = Clock(), refusal(RefusalReason.KV_BUSY)
    refused = Refused(clock)
    for turn in range(20):
        clock.now_s = turn * KEPT_S / 2
        waiting = [gateway for gateway, from_turn in since.items() if turn >= from_turn]
        for gateway in waiting:
            refused.answered(gateway, no)
        assert not waiting or not all(refused.others_first(gateway, lambda: held) for gateway in waiting)


def test_who_has_waited_long_goes_first_though_it_holds_much(refused: Refused, clock: Clock) -> None:
    while clock.now_s <= LONG_S + KEPT_S:
        refused.answered("rich", refusal(RefusalReason.KV_BUSY))
        if clock.now_s > LONG_S / 2:
            refused.answered("poor", refusal(RefusalReason.KV_BUSY))
        clock.now_s += KEPT_S / 2
    assert refused.others_first("poor", lambda: {"rich": 100})
    assert not refused.others_first("rich", lambda: {"rich": 100})


def test_a_ledger_tells_when_it_charges_less() -> None:
    told: list[str] = []
    ledger = Ledger(Shape(8, 16, 4, 1024), lambda: 0.0)
    ledger.charges.freed = lambda: told.append("freed")
    grant = ledger.reserve(ReserveRequest("g", "r", 40, 40, 30.0), Load())
    assert isinstance(grant, Reservation)
    assert told == []
    ledger.release(grant.reservation_id)
    assert told == ["freed"]
