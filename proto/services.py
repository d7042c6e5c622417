"""Every RPC of tandem.v1 with the nouns it carries. `METHOD.unary(channel)` makes a typed stub of it."""

from dataclasses import replace

from google.protobuf.message import DecodeError

from proto import convert
from proto.convert.enums import WireError
from proto.fault import Fault
from proto.join import JoinReply, JoinRequest
from proto.method import Method
from proto.reservation import Refusal, ReleaseReservation, RenewReservation, Reservation, ReserveRequest
from proto.tandem.v1 import decode_pb2, prefill_pb2, registry_pb2, worker_pb2
from proto.ticket import ReleaseTicket
from proto.work import Command, Frame, PrefillDone, Work
from proto.worker import RoleChange, StepLimit, StepReport, WarmResult, WorkerInfo, WorkerState

WORKER_SERVICE = "tandem.v1.Worker"
PREFILL_SERVICE = "tandem.v1.Prefill"
DECODE_SERVICE = "tandem.v1.Decode"
REGISTRY_SERVICE = "tandem.v1.Registry"


def _empty(_: None) -> bytes:
    return b""


def _nothing(_: bytes) -> None:
    return None


def _work_to_bytes(work: Work) -> bytes:
    return prefill_pb2.PrefillRequest(work=convert.work_to_pb(work)).SerializeToString()


def _work_from_bytes(data: bytes) -> Work:
    return convert.work_from_pb(prefill_pb2.PrefillRequest.FromString(data).work)


def _release_to_bytes(release: ReleaseTicket) -> bytes:
    return prefill_pb2.ReleaseTicketRequest(
        ticket_id=release.ticket_id, epoch=release.epoch, request_id=release.request_id
    ).SerializeToString()


def _release_from_bytes(data: bytes) -> ReleaseTicket:
    message = prefill_pb2.ReleaseTicketRequest.FromString(data)
    return ReleaseTicket(message.epoch, message.ticket_id, message.request_id)


def _release_reservation_to_bytes(release: ReleaseReservation) -> bytes:
    return decode_pb2.ReleaseReservationRequest(
        reservation_id=release.reservation_id, gateway_id=release.gateway_id, request_id=release.request_id
    ).SerializeToString()


def _release_reservation_from_bytes(data: bytes) -> ReleaseReservation:
    message = decode_pb2.ReleaseReservationRequest.FromString(data)
    return ReleaseReservation(message.reservation_id, message.gateway_id, message.request_id)


def _renew_to_bytes(renew: RenewReservation) -> bytes:
    message = decode_pb2.RenewRequest(reservation_id=renew.reservation_id, gateway_id=renew.gateway_id)
    return message.SerializeToString()


def _renew_from_bytes(data: bytes) -> RenewReservation:
    message = decode_pb2.RenewRequest.FromString(data)
    return RenewReservation(message.reservation_id, message.gateway_id)


def _peer_to_bytes(peer: WorkerInfo) -> bytes:
    return worker_pb2.WarmRequest(peer=convert.worker_info_to_pb(peer)).SerializeToString()


def _peer_from_bytes(data: bytes) -> WorkerInfo:
    message = worker_pb2.WarmRequest.FromString(data)
    if not message.HasField("peer"):
        raise WireError("a WarmRequest names no peer")
    return convert.worker_info_from_pb(message.peer)


def sequence_started(command: bytes) -> int | None:
    """The sequence that a Start is about, whatever else is wrong with it; None for anything else."""
    try:
        message = decode_pb2.Command.FromString(command)
    except DecodeError:
        return None
    return message.start.sequence if message.WhichOneof("command") == "start" else None


DESCRIBE: Method[None, WorkerInfo] = Method(
    WORKER_SERVICE,
    "Describe",
    _empty,
    _nothing,
    lambda info: convert.worker_info_to_pb(info).SerializeToString(),
    lambda data: convert.worker_info_from_pb(worker_pb2.WorkerInfo.FromString(data)),
)
#: The request is the interval between two snapshots, in seconds.
WATCH: Method[float, WorkerState] = Method(
    WORKER_SERVICE,
    "Watch",
    lambda interval_s: worker_pb2.WatchRequest(interval_s=interval_s).SerializeToString(),
    lambda data: worker_pb2.WatchRequest.FromString(data).interval_s,
    lambda state: convert.worker_state_to_pb(state).SerializeToString(),
    lambda data: convert.worker_state_from_pb(worker_pb2.WorkerState.FromString(data)),
)
WARM: Method[WorkerInfo, WarmResult] = Method(
    WORKER_SERVICE,
    "Warm",
    _peer_to_bytes,
    _peer_from_bytes,
    lambda result: convert.warm_reply_to_pb(result).SerializeToString(),
    lambda data: convert.warm_reply_from_pb(worker_pb2.WarmReply.FromString(data)),
)
#: The request is `resume`; the reply is how much is still outstanding.
DRAIN: Method[bool, int] = Method(
    WORKER_SERVICE,
    "Drain",
    lambda resume: worker_pb2.DrainRequest(resume=resume).SerializeToString(),
    lambda data: worker_pb2.DrainRequest.FromString(data).resume,
    lambda outstanding: worker_pb2.DrainReply(outstanding=outstanding).SerializeToString(),
    lambda data: worker_pb2.DrainReply.FromString(data).outstanding,
)
SET_ROLE: Method[RoleChange, RoleChange] = Method(
    WORKER_SERVICE,
    "SetRole",
    lambda change: worker_pb2.SetRoleRequest(role=convert.role_to_pb(change.role)).SerializeToString(),
    lambda data: RoleChange(convert.role_from_pb(worker_pb2.SetRoleRequest.FromString(data).role)),
    lambda before: worker_pb2.SetRoleReply(previous=convert.role_to_pb(before.role)).SerializeToString(),
    lambda data: RoleChange(convert.role_from_pb(worker_pb2.SetRoleReply.FromString(data).previous)),
)
LIMIT_STEP: Method[StepLimit, StepReport] = Method(
    WORKER_SERVICE,
    "LimitStep",
    lambda limit: convert.step_limit_to_pb(limit).SerializeToString(),
    lambda data: convert.step_limit_from_pb(worker_pb2.LimitStepRequest.FromString(data)),
    lambda report: convert.step_report_to_pb(report).SerializeToString(),
    lambda data: convert.step_report_from_pb(worker_pb2.LimitStepReply.FromString(data)),
)
PREFILL: Method[Work, PrefillDone | Fault] = Method(
    PREFILL_SERVICE,
    "Prefill",
    _work_to_bytes,
    _work_from_bytes,
    lambda reply: convert.prefill_reply_to_pb(reply).SerializeToString(),
    lambda data: convert.prefill_reply_from_pb(prefill_pb2.PrefillReply.FromString(data)),
)
#: PREFILL in parts: one for each engine step, the last with `finish`.
BEGIN: Method[Work, PrefillDone | Fault] = replace(PREFILL, name="Begin")
RELEASE_TICKET: Method[ReleaseTicket, bool] = Method(
    PREFILL_SERVICE,
    "Release",
    _release_to_bytes,
    _release_from_bytes,
    lambda released: prefill_pb2.ReleaseTicketReply(released=released).SerializeToString(),
    lambda data: prefill_pb2.ReleaseTicketReply.FromString(data).released,
)
RESERVE: Method[ReserveRequest, Reservation | Refusal] = Method(
    DECODE_SERVICE,
    "Reserve",
    lambda request: convert.reserve_request_to_pb(request).SerializeToString(),
    lambda data: convert.reserve_request_from_pb(decode_pb2.ReserveRequest.FromString(data)),
    lambda reply: convert.reserve_reply_to_pb(reply).SerializeToString(),
    lambda data: convert.reserve_reply_from_pb(decode_pb2.ReserveReply.FromString(data)),
)
RENEW_RESERVATION: Method[RenewReservation, bool] = Method(
    DECODE_SERVICE,
    "Renew",
    _renew_to_bytes,
    _renew_from_bytes,
    lambda renewed: decode_pb2.RenewReply(renewed=renewed).SerializeToString(),
    lambda data: decode_pb2.RenewReply.FromString(data).renewed,
)
RELEASE_RESERVATION: Method[ReleaseReservation, bool] = Method(
    DECODE_SERVICE,
    "Release",
    _release_reservation_to_bytes,
    _release_reservation_from_bytes,
    lambda released: decode_pb2.ReleaseReservationReply(released=released).SerializeToString(),
    lambda data: decode_pb2.ReleaseReservationReply.FromString(data).released,
)
ATTACH: Method[Command, Frame] = Method(
    DECODE_SERVICE,
    "Attach",
    lambda command: convert.command_to_pb(command).SerializeToString(),
    lambda data: convert.command_from_pb(decode_pb2.Command.FromString(data)),
    lambda frame: convert.frame_to_pb(frame).SerializeToString(),
    lambda data: convert.frame_from_pb(decode_pb2.Frame.FromString(data)),
)
JOIN: Method[JoinRequest, JoinReply] = Method(
    REGISTRY_SERVICE,
    "Join",
    lambda request: convert.join_request_to_pb(request).SerializeToString(),
    lambda data: convert.join_request_from_pb(registry_pb2.JoinRequest.FromString(data)),
    lambda reply: convert.join_reply_to_pb(reply).SerializeToString(),
    lambda data: convert.join_reply_from_pb(registry_pb2.JoinReply.FromString(data)),
)
