"""What a worker is, how it does, warming and joining."""

from dataclasses import fields

from proto.convert.common import fault_to_pb
from proto.convert.enums import ROLE_FROM_PB, ROLE_TO_PB, known
from proto.fault import Fault, FaultKind
from proto.join import JoinReply, JoinRequest
from proto.tandem.v1 import common_pb2, registry_pb2
from proto.tandem.v1 import worker_pb2 as pb
from proto.worker import (
    PeerTransfers,
    Role,
    StepLimit,
    StepReport,
    StepTotals,
    Topology,
    WarmResult,
    WorkerInfo,
    WorkerState,
)

#: Fields that have the same name and type on both sides; the round-trip tests keep this list honest.
_INFO_SAME = [
    "worker_id",
    "epoch",
    "model",
    "model_path",
    "model_hash",
    "revision",
    "dtype",
    "kv_layout",
    "block_size_tokens",
    "blocks_total",
    "kv_bytes_per_token",
    "tp",
    "pp",
    "engine",
    "engine_version",
    "max_model_len",
    "max_num_seqs",
    "eos_token_ids",
    "vocab_size",
    "kv_lease_s",
    "peer_params",
    "hands_over",
]

_STATE_SAME = [
    "epoch",
    "sequence",
    "healthy",
    "draining",
    "detail",
    "blocks_total",
    "blocks_used",
    "blocks_reserved",
    "reservations",
    "running",
    "waiting",
    "tickets_held",
    "attached_gateways",
    "sequences",
    "preemptions",
    "recomputed_tokens",
    "prompt_tokens",
    "generated_tokens",
    "cached_prompt_tokens",
    "steps",
    "step_time_s",
    "tickets_issued",
    "tickets_expired",
    "tickets_released",
    "failed_notifications",
    "blocks_promised",
    "overrun_risk",
    "error_budget",
    "pool_blocks",
    "pool_blocks_used",
]

_TOTALS_SAME = [field.name for field in fields(StepTotals)]


def role_to_pb(role: Role) -> common_pb2.Role:
    return ROLE_TO_PB[role]


def role_from_pb(number: int) -> Role:
    return known(ROLE_FROM_PB, number)


def _topology_to_pb(topology: Topology) -> pb.Topology:
    return pb.Topology(
        host=topology.host,
        nvlink_domain=topology.nvlink_domain,
        rack=topology.rack,
        numa=topology.numa,
        device=topology.device,
        transports=topology.transports,
        node=topology.node,
    )


def _topology_from_pb(message: pb.Topology) -> Topology:
    return Topology(
        host=message.host,
        nvlink_domain=message.nvlink_domain,
        rack=message.rack,
        numa=message.numa,
        device=message.device,
        transports=tuple(message.transports),
        node=message.node,
    )


def worker_info_to_pb(info: WorkerInfo) -> pb.WorkerInfo:
    message = pb.WorkerInfo(**{name: getattr(info, name) for name in _INFO_SAME})
    message.role = ROLE_TO_PB[info.role]
    message.topology.CopyFrom(_topology_to_pb(info.topology))
    return message


def worker_info_from_pb(message: pb.WorkerInfo) -> WorkerInfo:
    same = {name: getattr(message, name) for name in _INFO_SAME}
    same["eos_token_ids"] = tuple(message.eos_token_ids)
    return WorkerInfo(role=role_from_pb(message.role), topology=_topology_from_pb(message.topology), **same)


def _transfers_to_pb(transfers: PeerTransfers) -> pb.PeerTransfers:
    return pb.PeerTransfers(
        worker_id=transfers.worker_id,
        transfers=transfers.transfers,
        bytes=transfers.bytes,
        seconds=transfers.seconds,
        failures=transfers.failures,
    )


def _transfers_from_pb(message: pb.PeerTransfers) -> PeerTransfers:
    return PeerTransfers(message.worker_id, message.transfers, message.bytes, message.seconds, message.failures)


def _totals_to_pb(totals: StepTotals) -> pb.StepTotals:
    return pb.StepTotals(**{name: getattr(totals, name) for name in _TOTALS_SAME})


def _totals_from_pb(message: pb.StepTotals) -> StepTotals:
    return StepTotals(**{name: getattr(message, name) for name in _TOTALS_SAME})


def worker_state_to_pb(state: WorkerState) -> pb.WorkerState:
    message = pb.WorkerState(**{name: getattr(state, name) for name in _STATE_SAME})
    message.role = ROLE_TO_PB[state.role]
    message.transfers.extend([_transfers_to_pb(entry) for entry in state.transfers])
    message.totals.CopyFrom(_totals_to_pb(state.totals))
    return message


def worker_state_from_pb(message: pb.WorkerState) -> WorkerState:
    return WorkerState(
        role=role_from_pb(message.role),
        transfers=tuple([_transfers_from_pb(entry) for entry in message.transfers]),
        totals=_totals_from_pb(message.totals),
        **{name: getattr(message, name) for name in _STATE_SAME},
    )


def step_limit_to_pb(limit: StepLimit) -> pb.LimitStepRequest:
    return pb.LimitStepRequest(
        gateway_id=limit.gateway_id,
        step_tokens=limit.step_tokens,
        chunk_tokens=limit.chunk_tokens,
        lease_s=limit.lease_s,
    )


def step_limit_from_pb(message: pb.LimitStepRequest) -> StepLimit:
    return StepLimit(message.gateway_id, message.step_tokens, message.chunk_tokens, message.lease_s)


def step_report_to_pb(report: StepReport) -> pb.LimitStepReply:
    return pb.LimitStepReply(most_step_tokens=report.most_step_tokens, totals=_totals_to_pb(report.totals))


def step_report_from_pb(message: pb.LimitStepReply) -> StepReport:
    return StepReport(message.most_step_tokens, _totals_from_pb(message.totals))


def warm_reply_to_pb(result: WarmResult) -> pb.WarmReply:
    return pb.WarmReply(
        ok=result.ok,
        transport=result.transport,
        handshake_s=result.handshake_s,
        bytes_per_s=result.bytes_per_s,
        detail=result.detail,
        fault=None if result.ok else fault_to_pb(Fault(FaultKind.PAIR_INCOMPATIBLE, result.detail)),
    )


def warm_reply_from_pb(message: pb.WarmReply) -> WarmResult:
    return WarmResult(
        ok=message.ok,
        transport=message.transport,
        handshake_s=message.handshake_s,
        bytes_per_s=message.bytes_per_s,
        detail=message.detail or message.fault.message,
    )


def join_request_to_pb(request: JoinRequest) -> registry_pb2.JoinRequest:
    return registry_pb2.JoinRequest(worker_id=request.worker_id, epoch=request.epoch, address=request.address)


def join_request_from_pb(message: registry_pb2.JoinRequest) -> JoinRequest:
    return JoinRequest(message.worker_id, message.epoch, message.address)


def join_reply_to_pb(reply: JoinReply) -> registry_pb2.JoinReply:
    return registry_pb2.JoinReply(accepted=reply.accepted, reason=reply.reason, next_join_s=reply.next_join_s)


def join_reply_from_pb(message: registry_pb2.JoinReply) -> JoinReply:
    return JoinReply(message.accepted, message.reason, message.next_join_s)
