"""The load of the decode workers, as early rejection sees it."""

import pytest

from gateway.policy.control.forecast import decode_load
from gateway.policy.routing import DecodeCandidate, Fleet
from proto.worker import Role


def fleet(headroom: float | None, free: int = 1000) -> Fleet:
    one = DecodeCandidate("d", Role.DECODE, 4096, 16, 1000, free, 64, headroom_blocks=headroom, pool_blocks=100)
    return Fleet((one,), (), {})


@pytest.mark.parametrize(
    ("headroom", "queued", "load"), [(900.0, 0.0, 0.0), (450.0, 0.0, 0.5), (0.0, 90.0, 1.1), (-50.0, 0.0, 1.0)]
)
def test_an_emergency_pool_is_neither_room_nor_load(headroom: float, queued: float, load: float) -> None:
    found, room = decode_load(fleet(headroom), queued)
    assert found == pytest.approx(load)
    assert room == 900.0


def test_where_no_forecast_is_told_the_pool_still_is_no_room() -> None:
    assert decode_load(fleet(None), 0.0) == (0.0, 900.0)
    assert decode_load(fleet(None, free=450), 0.0)[0] == pytest.approx(0.5)


def test_without_a_worker_the_load_is_full() -> None:
    assert decode_load(Fleet((), (), {}), 0.0) == (1.0, 0.0)
