"""Commands and frames in bytes. What is wrong with one sequence must not end the stream of all the others."""

from collections.abc import Callable
from dataclasses import dataclass

from proto.fault import Fault, FaultError, FaultKind
from proto.services import ATTACH, sequence_started
from proto.work import Command, Frame, SequenceDelta

#: Told of a sequence whose news cannot be sent, and why; gives the fault to send instead.
Unspeakable = Callable[[int, Exception], Fault]


@dataclass(frozen=True, slots=True)
class Malformed:
    """A Start that cannot be understood, but whose sequence is known."""

    sequence: int
    fault: Fault


def decode_command(data: bytes) -> Command | Malformed:
    """Raises FaultError for what cannot be answered by sequence."""
    try:
        return ATTACH.decode_request(data)
    except Exception as error:
        fault = Fault(FaultKind.INVALID_REQUEST, f"the command cannot be understood: {error}")
        sequence = sequence_started(data)
        if sequence is None:
            raise FaultError(fault) from error
        return Malformed(sequence, fault)


def encode_frame(frame: Frame, unspeakable: Unspeakable) -> bytes:
    try:
        return ATTACH.encode_reply(frame)
    except Exception:
        return ATTACH.encode_reply(tuple([_sound(sequence, delta, unspeakable) for sequence, delta in frame]))


def _sound(sequence: int, delta: SequenceDelta, unspeakable: Unspeakable) -> tuple[int, SequenceDelta]:
    try:
        ATTACH.encode_reply(((sequence, delta),))
    except Exception as error:
        return sequence, SequenceDelta((), fault=unspeakable(sequence, error))
    return sequence, delta
