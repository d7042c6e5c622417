"""Tickets of this engine: what vLLM's hand-off parameters look like on the wire, and which are safe to redeem."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proto.fault import Fault, FaultError, FaultKind
from proto.ticket import Ticket
from proto.worker import WorkerInfo
from transfer.ticket import boundary_fault

_MAX_BLOCK_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Handoff:
    """Where pinned KV lies: the writer's address and the blocks, one list a KV cache group."""

    engine_id: str
    request_id: str
    host: str
    port: int
    tp: int
    pp: int
    tokens: int
    blocks: tuple[tuple[int, ...], ...]

    @classmethod
    def from_engine(cls, params: Mapping[str, Any]) -> "Handoff":
        """From what vLLM returns when a prefill ends."""
        return cls(
            engine_id=params["remote_engine_id"],
            request_id=params["remote_request_id"],
            host=params["remote_host"],
            port=int(params["remote_port"]),
            tp=int(params["tp_size"]),
            pp=int(params["pp_size"]),
            tokens=int(params["remote_num_tokens"]),
            blocks=tuple(tuple(int(block) for block in group) for group in params["remote_block_ids"]),
        )

    def to_engine(self) -> dict[str, Any]:
        """What vLLM takes to pull."""
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self.engine_id,
            "remote_request_id": self.request_id,
            "remote_host": self.host,
            "remote_port": self.port,
            "remote_block_ids": [list(group) for group in self.blocks],
            "remote_num_tokens": self.tokens,
            "tp_size": self.tp,
            "dcp_size": 1,
            "pp_size": self.pp,
            "transfer_mode": "pull",
        }

    def pack(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, packed: bytes) -> "Handoff":
        """Raises ValueError unless every field is there and has its type and range."""
        fields = json.loads(packed)
        if not isinstance(fields, dict) or set(fields) != set(cls.__slots__):
            raise ValueError("fields are missing or unknown")
        handoff = cls(**(fields | {"blocks": _blocks(fields["blocks"])}))
        texts = (handoff.engine_id, handoff.request_id, handoff.host)
        counts = (handoff.port, handoff.tp, handoff.pp, handoff.tokens)
        if not all(isinstance(text, str) and text for text in texts):
            raise ValueError("an id or the host is not a text")
        if not all(_is_count(count) and count > 0 for count in counts) or handoff.port > 65_535:
            raise ValueError("port, tp, pp or tokens is out of range")
        return handoff


def _blocks(groups: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(groups, list) or not groups:
        raise ValueError("blocks is not a list of groups")
    for group in groups:
        if not isinstance(group, list) or not all(_is_count(block) for block in group):
            raise ValueError("a group is not a list of block numbers")
    return tuple(tuple(group) for group in groups)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_BLOCK_ID


def engine_id(worker_id: str, epoch: str) -> str:
    """The name an engine goes by among its peers: a restarted worker is another engine."""
    return f"{worker_id}@{epoch}"


def worker_of(engine_id: str) -> str:
    return engine_id.rpartition("@")[0]


def issue(handoff: Handoff, info: WorkerInfo, lease_s: float) -> Ticket:
    """For KV that the described engine has just begun to keep."""
    blocks, block_size = max(map(len, handoff.blocks)), info.block_size_tokens
    return Ticket(
        ticket_id=handoff.request_id,
        worker_id=info.worker_id,
        epoch=info.epoch,
        engine_params=handoff.pack(),
        computed_tokens=handoff.tokens,
        blocks=blocks,
        block_size_tokens=block_size,
        kv_bytes=blocks * block_size * info.kv_bytes_per_token,
        lease_s=lease_s,
    )


def redeem(ticket: Ticket, tokens: int, *, own_id: str, block_size: int, groups: int) -> Handoff:
    """The hand-off of a ticket, or FaultError for one that would corrupt an answer or take the engine down."""
    try:
        handoff = Handoff.unpack(ticket.engine_params)
    except (ValueError, TypeError, RecursionError) as error:
        raise _fault(FaultKind.KV_LOAD_FAILED, f"malformed ticket: {error}") from None
    if handoff.engine_id != engine_id(ticket.worker_id, ticket.epoch):
        raise _fault(FaultKind.TICKET_STALE, "the ticket's writer is not the engine its KV lies in")
    if handoff.engine_id == own_id:
        raise _fault(FaultKind.PAIR_INCOMPATIBLE, "a worker cannot pull KV from itself")
    if ticket.block_size_tokens != block_size:
        numbers = {"writer_block_size": ticket.block_size_tokens, "reader_block_size": block_size}
        raise _fault(FaultKind.PAIR_INCOMPATIBLE, "KV block sizes differ", **numbers)
    if len(handoff.blocks) != groups:
        numbers = {"writer_groups": len(handoff.blocks), "reader_groups": groups}
        raise _fault(FaultKind.PAIR_INCOMPATIBLE, "KV cache groups differ", **numbers)
    # By the blocks that would be read, whatever the ticket says of them.
    if fault := boundary_fault(tokens, block_size, max(map(len, handoff.blocks))):
        raise FaultError(fault)
    return handoff


def _fault(kind: FaultKind, message: str, **numbers: float) -> FaultError:
    return FaultError(Fault(kind, message, numbers))
