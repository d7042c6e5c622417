"""Every noun survives the wire unchanged, through real serialised bytes."""

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

import pytest
from hypothesis import given

from proto import convert
from proto.fault import Fault, FaultKind
from proto.join import JoinReply, JoinRequest
from proto.reservation import Refusal, Reservation, ReserveRequest
from proto.sampling import Sampling
from proto.tandem.v1 import common_pb2, decode_pb2, prefill_pb2, worker_pb2
from proto.ticket import Ticket
from proto.work import Command, FinishReason, Frame, PrefillDone, SequenceDelta, TokenLogprobs, Work
from proto.worker import Role, WarmResult, WorkerInfo, WorkerState
from tests.examples import examples
from tests.proto import nouns

N = TypeVar("N")


class Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...  # noqa: N802


M = TypeVar("M", bound=Message)


def over_the_wire(noun: N, to_pb: Callable[[N], M], from_pb: Callable[[M], N]) -> N:
    message = to_pb(noun)
    return from_pb(type(message).FromString(message.SerializeToString()))


@given(nouns.FAULTS)
def test_fault_round_trips(noun: Fault) -> None:
    assert over_the_wire(noun, convert.fault_to_pb, convert.fault_from_pb) == noun


@given(nouns.SAMPLINGS)
def test_sampling_round_trips(noun: Sampling) -> None:
    assert over_the_wire(noun, convert.sampling_to_pb, convert.sampling_from_pb) == noun


@given(nouns.TICKETS)
def test_ticket_round_trips(noun: Ticket) -> None:
    assert over_the_wire(noun, convert.ticket_to_pb, convert.ticket_from_pb) == noun


@given(nouns.LOGPROBS)
def test_logprobs_round_trip(noun: TokenLogprobs) -> None:
    assert over_the_wire(noun, convert.logprobs_to_pb, convert.logprobs_from_pb) == noun


@given(nouns.WORKS)
@examples(60)
def test_work_round_trips(noun: Work) -> None:
    assert over_the_wire(noun, convert.work_to_pb, convert.work_from_pb) == noun


@given(nouns.FRAMES)
@examples(60)
def test_frame_round_trips(noun: Frame) -> None:
    assert over_the_wire(noun, convert.frame_to_pb, convert.frame_from_pb) == noun


@pytest.mark.parametrize(
    "delta",
    [
        SequenceDelta((), ticket=Ticket("t", "w", "e", b"", 17, 2, 16, 1, 30.0)),
        SequenceDelta((), stays=True),
        SequenceDelta((), cached_tokens=1),
        SequenceDelta((), queue_s=0.5),
        SequenceDelta((), finish=FinishReason.LENGTH),
    ],
)
def test_each_rare_field_travels_alone(delta: SequenceDelta) -> None:
    """A frame is cheap for what it leaves out: a ticket with no other news was left out too."""
    frame: Frame = ((3, delta),)
    assert over_the_wire(frame, convert.frame_to_pb, convert.frame_from_pb) == frame


@given(nouns.PREFILL_DONES)
@examples(60)
def test_prefill_done_round_trips(noun: PrefillDone) -> None:
    assert over_the_wire(noun, convert.prefill_done_to_pb, convert.prefill_done_from_pb) == noun


@given(nouns.PREFILL_DONES | nouns.FAULTS)
@examples(60)
def test_prefill_reply_round_trips(noun: PrefillDone | Fault) -> None:
    assert over_the_wire(noun, convert.prefill_reply_to_pb, convert.prefill_reply_from_pb) == noun


@given(nouns.COMMANDS)
@examples(60)
def test_command_round_trips(noun: Command) -> None:
    assert over_the_wire(noun, convert.command_to_pb, convert.command_from_pb) == noun


@given(nouns.RESERVE_REQUESTS)
def test_reserve_request_round_trips(noun: ReserveRequest) -> None:
    assert over_the_wire(noun, convert.reserve_request_to_pb, convert.reserve_request_from_pb) == noun


@given(nouns.RESERVE_REPLIES)
def test_reserve_reply_round_trips(noun: Reservation | Refusal) -> None:
    assert over_the_wire(noun, convert.reserve_reply_to_pb, convert.reserve_reply_from_pb) == noun


@given(nouns.INFOS)
@examples(60)
def test_worker_info_round_trips(noun: WorkerInfo) -> None:
    assert over_the_wire(noun, convert.worker_info_to_pb, convert.worker_info_from_pb) == noun


@given(nouns.STATES)
@examples(60)
def test_worker_state_round_trips(noun: WorkerState) -> None:
    assert over_the_wire(noun, convert.worker_state_to_pb, convert.worker_state_from_pb) == noun


@given(nouns.WARM_RESULTS)
def test_warm_result_round_trips(noun: WarmResult) -> None:
    assert over_the_wire(noun, convert.warm_reply_to_pb, convert.warm_reply_from_pb) == noun


@given(nouns.JOIN_REQUESTS)
def test_join_request_round_trips(noun: JoinRequest) -> None:
    assert over_the_wire(noun, convert.join_request_to_pb, convert.join_request_from_pb) == noun


@given(nouns.JOIN_REPLIES)
def test_join_reply_round_trips(noun: JoinReply) -> None:
    assert over_the_wire(noun, convert.join_reply_to_pb, convert.join_reply_from_pb) == noun


@pytest.mark.parametrize("kind", list(FaultKind))
def test_every_fault_kind_has_its_own_number(kind: FaultKind) -> None:
    assert over_the_wire(Fault(kind, "why"), convert.fault_to_pb, convert.fault_from_pb).kind is kind


def test_every_wire_value_but_unspecified_has_a_noun() -> None:
    pairs = [(common_pb2.Role, Role), (common_pb2.FinishReason, FinishReason), (common_pb2.FaultKind, FaultKind)]
    for wire, kinds in pairs:
        assert len(wire.items()) == len(kinds) + 1


def test_a_fault_kind_of_a_newer_worker_is_still_a_fault() -> None:
    fault = convert.fault_from_pb(common_pb2.Fault.FromString(b"\x08\x63\x12\x03new"))
    assert fault == Fault(FaultKind.INTERNAL, "new")


def test_empty_messages_are_refused_not_guessed() -> None:
    with pytest.raises(convert.WireError):
        convert.reserve_reply_from_pb(decode_pb2.ReserveReply())
    with pytest.raises(convert.WireError):
        convert.command_from_pb(decode_pb2.Command())
    with pytest.raises(convert.WireError):
        convert.prefill_reply_from_pb(prefill_pb2.PrefillReply())
    with pytest.raises(convert.WireError):
        convert.worker_info_from_pb(worker_pb2.WorkerInfo())


@pytest.mark.parametrize("token", [-1, 2**32])
def test_a_token_outside_32_bits_is_refused_at_the_edge(token: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        convert.frame_to_pb(((1, SequenceDelta((token,))),))


def test_a_plain_token_costs_few_bytes() -> None:
    frame = tuple((sequence, SequenceDelta((40_000,))) for sequence in range(256))
    assert len(convert.frame_to_pb(frame).SerializeToString()) <= 10 * 256
