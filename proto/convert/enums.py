"""Closed lists on the wire. A value this build does not know is refused, never guessed."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar, cast

from proto.fault import FaultKind
from proto.reservation import RefusalReason
from proto.sampling import StructuredKind
from proto.tandem.v1 import common_pb2, decode_pb2
from proto.work import FinishReason
from proto.worker import Role

E = TypeVar("E", bound=StrEnum)
P = TypeVar("P")


class WireError(ValueError):
    """A message that breaks the contract: the peer is a different version or not tandem at all."""


def _table(kinds: type[E], prefix: str, values: Mapping[str, P]) -> dict[E, P]:
    return {kind: values[f"{prefix}_{kind.name}"] for kind in kinds}


# The stubs call the values instances of the enum; `items` calls them int, which is what they are.
_ROLES = cast("dict[str, common_pb2.Role]", dict(common_pb2.Role.items()))
_FINISHES = cast("dict[str, common_pb2.FinishReason]", dict(common_pb2.FinishReason.items()))
_FAULTS = cast("dict[str, common_pb2.FaultKind]", dict(common_pb2.FaultKind.items()))
_REFUSALS = cast("dict[str, decode_pb2.RefusalReason]", dict(decode_pb2.RefusalReason.items()))
_STRUCTURED = cast("dict[str, common_pb2.StructuredOutput.Kind]", dict(common_pb2.StructuredOutput.Kind.items()))

ROLE_TO_PB = _table(Role, "ROLE", _ROLES)
FINISH_TO_PB = _table(FinishReason, "FINISH_REASON", _FINISHES)
FAULT_TO_PB = _table(FaultKind, "FAULT_KIND", _FAULTS)
REFUSAL_TO_PB = _table(RefusalReason, "REFUSAL_REASON", _REFUSALS)
STRUCTURED_TO_PB = _table(StructuredKind, "KIND", _STRUCTURED)

ROLE_FROM_PB = {int(number): role for role, number in ROLE_TO_PB.items()}
FINISH_FROM_PB = {int(number): reason for reason, number in FINISH_TO_PB.items()}
FAULT_FROM_PB = {int(number): kind for kind, number in FAULT_TO_PB.items()}
REFUSAL_FROM_PB = {int(number): reason for reason, number in REFUSAL_TO_PB.items()}
STRUCTURED_FROM_PB = {int(number): kind for kind, number in STRUCTURED_TO_PB.items()}


def known(table: Mapping[int, E], number: int) -> E:
    """The member for a wire number; WireError when there is none."""
    try:
        return table[number]
    except KeyError:
        raise WireError(f"unknown enum number {number}; expected one of {sorted(table)}") from None
