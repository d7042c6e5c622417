"""Tickets: only what the engine itself wrote can be redeemed, and only where it cannot do harm."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.vllm.tickets import Handoff, engine_id, redeem, worker_of
from proto.fault import FaultError, FaultKind
from proto.ticket import Ticket

_HANDOFF = Handoff("w@e1", "r.1", "127.0.0.1", 5600, 1, 1, 300, ((4, 5, 6),))


def _ticket(handoff: Handoff = _HANDOFF, packed: bytes | None = None) -> Ticket:
    return Ticket("r.1", "w", "e1", packed or handoff.pack(), 300, 3, 128, 1, 30.0)


def _redeem(ticket: Ticket, tokens: int = 300) -> Handoff:
    return redeem(ticket, tokens, own_id="d@e9", block_size=128, groups=1)


def _kind(ticket: Ticket, tokens: int = 300) -> FaultKind:
    with pytest.raises(FaultError) as refusal:
        _redeem(ticket, tokens)
    return refusal.value.fault.kind


def test_what_was_packed_is_what_is_redeemed() -> None:
    assert _redeem(_ticket()) == _HANDOFF
    assert Handoff.from_engine(_HANDOFF.to_engine()) == _HANDOFF


@pytest.mark.parametrize("tokens", [257, 300, 384])
def test_as_many_blocks_as_the_writer_holds_are_fine(tokens: int) -> None:
    assert _redeem(_ticket(), tokens).blocks == ((4, 5, 6),)


@pytest.mark.parametrize("tokens", [385, 512, 256, 1])
def test_more_or_fewer_blocks_are_refused_with_the_numbers(tokens: int) -> None:
    with pytest.raises(FaultError) as refusal:
        _redeem(_ticket(), tokens)
    fault = refusal.value.fault
    assert fault.kind is FaultKind.TICKET_BOUNDARY
    assert fault.numbers == {"tokens": tokens, "blocks_needed": -(-tokens // 128), "blocks_held": 3}


def test_a_ticket_of_another_epoch_worker_or_shape_is_refused() -> None:
    assert _kind(replace(_ticket(), epoch="e2")) is FaultKind.TICKET_STALE
    assert _kind(replace(_ticket(), worker_id="v")) is FaultKind.TICKET_STALE
    assert _kind(replace(_ticket(), block_size_tokens=16)) is FaultKind.PAIR_INCOMPATIBLE
    assert _kind(_ticket(replace(_HANDOFF, blocks=((1,), (2,))))) is FaultKind.PAIR_INCOMPATIBLE
    own = replace(_HANDOFF, engine_id="d@e9")
    assert _kind(replace(_ticket(own), worker_id="d", epoch="e9")) is FaultKind.PAIR_INCOMPATIBLE


_FIELDS = {name: getattr(_HANDOFF, name) for name in Handoff.__slots__}


@pytest.mark.parametrize(
    "change",
    [
        {"port": 0},
        {"port": 65_536},
        {"port": True},
        {"port": "5600"},
        {"host": ""},
        {"host": 7},
        {"engine_id": None},
        {"tokens": -1},
        {"tp": 0},
        {"tp": 1.5},
        {"blocks": []},
        {"blocks": [[]]},
        {"blocks": [[-1, 2, 3]]},
        {"blocks": [[2**31, 2, 3]]},
        {"blocks": [["1", 2, 3]]},
        {"blocks": [5]},
        {"extra": 1},
    ],
)
def test_a_field_out_of_range_is_refused(change: dict[str, Any]) -> None:
    packed = json.dumps(_FIELDS | change).encode()
    assert _kind(_ticket(packed=packed)) in (FaultKind.KV_LOAD_FAILED, FaultKind.TICKET_BOUNDARY)


@given(st.binary(min_size=1, max_size=200))
def test_no_bytes_do_more_than_raise_a_fault(packed: bytes) -> None:
    assert _kind(_ticket(packed=packed)) is FaultKind.KV_LOAD_FAILED


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_no_json_does_more_than_raise_a_fault(value: Any) -> None:
    for name in _FIELDS:
        packed = json.dumps(_FIELDS | {name: value}).encode()
        try:
            _redeem(_ticket(packed=packed))
        except FaultError:
            continue
        assert value == _FIELDS[name] or name in ("host", "request_id", "port", "tp", "pp", "tokens", "blocks")


def test_an_engine_is_named_by_worker_and_epoch() -> None:
    assert worker_of(engine_id("rack-1@host", "e1")) == "rack-1@host"
