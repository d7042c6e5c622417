"""Reservations, commands and frames. `frame_to_pb` and `frame_from_pb` run once an engine step: keep them cheap."""

from proto.convert.common import (
    fault_from_pb,
    fault_to_pb,
    logprobs_from_pb,
    logprobs_to_pb,
    prompt_logprob_from_pb,
    prompt_logprob_to_pb,
    ticket_from_pb,
    ticket_to_pb,
    work_from_pb,
    work_to_pb,
)
from proto.convert.enums import FINISH_FROM_PB, FINISH_TO_PB, REFUSAL_FROM_PB, REFUSAL_TO_PB, WireError, known
from proto.fault import Fault, FaultKind
from proto.reservation import Refusal, Reservation, ReserveRequest
from proto.tandem.v1 import decode_pb2 as pb
from proto.work import Abort, Command, Frame, HandOver, Hello, SequenceDelta, Start, WriterLost


def reserve_request_to_pb(request: ReserveRequest) -> pb.ReserveRequest:
    return pb.ReserveRequest(
        gateway_id=request.gateway_id,
        request_id=request.request_id,
        prompt_tokens=request.prompt_tokens,
        growth_tokens=request.growth_tokens,
        ttl_s=request.ttl_s,
        sequences=request.sequences,
        lengths=request.lengths,
        limit_tokens=request.limit_tokens,
        arrival_s=request.arrival_s,
        lengths_of=request.lengths_of,
        generated_tokens=request.generated_tokens,
        emergency=request.emergency,
        moves=request.moves,
    )


def reserve_request_from_pb(message: pb.ReserveRequest) -> ReserveRequest:
    return ReserveRequest(
        gateway_id=message.gateway_id,
        request_id=message.request_id,
        prompt_tokens=message.prompt_tokens,
        growth_tokens=message.growth_tokens,
        ttl_s=message.ttl_s,
        sequences=message.sequences,
        lengths=tuple(message.lengths),
        limit_tokens=message.limit_tokens,
        arrival_s=message.arrival_s,
        lengths_of=message.lengths_of,
        generated_tokens=message.generated_tokens,
        emergency=message.emergency,
        moves=message.moves,
    )


def reserve_reply_to_pb(reply: Reservation | Refusal) -> pb.ReserveReply:
    if isinstance(reply, Reservation):
        granted = pb.Reservation(reservation_id=reply.reservation_id, blocks=reply.blocks, ttl_s=reply.ttl_s)
        return pb.ReserveReply(reservation=granted)
    return pb.ReserveReply(
        refusal=pb.Refusal(
            reason=REFUSAL_TO_PB[reply.reason],
            blocks_needed=reply.blocks_needed,
            blocks_total=reply.blocks_total,
            blocks_used=reply.blocks_used,
            blocks_reserved=reply.blocks_reserved,
            slots_total=reply.slots_total,
            slots_used=reply.slots_used,
            peak_blocks=reply.peak_blocks,
            limit_blocks=reply.limit_blocks,
            risk=reply.risk,
            peak_step=reply.peak_step,
        )
    )


def reserve_reply_from_pb(message: pb.ReserveReply) -> Reservation | Refusal:
    match message.WhichOneof("result"):
        case "reservation":
            granted = message.reservation
            return Reservation(granted.reservation_id, granted.blocks, granted.ttl_s)
        case "refusal":
            refusal = message.refusal
            return Refusal(
                reason=known(REFUSAL_FROM_PB, refusal.reason),
                blocks_needed=refusal.blocks_needed,
                blocks_total=refusal.blocks_total,
                blocks_used=refusal.blocks_used,
                blocks_reserved=refusal.blocks_reserved,
                slots_total=refusal.slots_total,
                slots_used=refusal.slots_used,
                peak_blocks=refusal.peak_blocks,
                limit_blocks=refusal.limit_blocks,
                risk=refusal.risk,
                peak_step=refusal.peak_step,
            )
        case _:
            raise WireError("a ReserveReply carries neither a reservation nor a refusal")


def command_to_pb(command: Command) -> pb.Command:
    match command:
        case Start():
            start = pb.Start(
                sequence=command.sequence,
                reservation_id=command.reservation_id,
                work=work_to_pb(command.work),
                ticket=None if command.ticket is None else ticket_to_pb(command.ticket),
            )
            return pb.Command(start=start)
        case Abort():
            return pb.Command(abort=pb.Abort(sequence=command.sequence))
        case WriterLost():
            lost = pb.WriterLost(sequence=command.sequence, worker_id=command.worker_id)
            return pb.Command(writer_lost=lost)
        case HandOver():
            return pb.Command(hand_over=pb.HandOver(sequence=command.sequence))
        case Hello():
            return pb.Command(hello=pb.Hello(gateway_id=command.gateway_id, epoch=command.epoch))


def command_from_pb(message: pb.Command) -> Command:
    match message.WhichOneof("command"):
        case "start":
            start = message.start
            return Start(
                sequence=start.sequence,
                reservation_id=start.reservation_id,
                work=work_from_pb(start.work),
                ticket=ticket_from_pb(start.ticket) if start.HasField("ticket") else None,
            )
        case "abort":
            return Abort(message.abort.sequence)
        case "writer_lost":
            return WriterLost(message.writer_lost.sequence, message.writer_lost.worker_id)
        case "hand_over":
            return HandOver(message.hand_over.sequence)
        case "hello":
            return Hello(message.hello.gateway_id, message.hello.epoch)
        case _:
            raise WireError("a Command carries none of hello, start, abort, writer_lost and hand_over")


def _fill_rare(message: pb.SequenceDelta, delta: SequenceDelta) -> None:
    """The fields of a first or last delta, or of one with logprobs."""
    if delta.logprobs:
        message.logprobs.extend([logprobs_to_pb(entry) for entry in delta.logprobs])
    if delta.finish is not None:
        message.finish = FINISH_TO_PB[delta.finish]
    if delta.fault is not None:
        message.fault.CopyFrom(fault_to_pb(delta.fault))
    if delta.ticket is not None:
        message.ticket.CopyFrom(ticket_to_pb(delta.ticket))
    if delta.prompt_logprobs:
        message.prompt_logprobs.extend([prompt_logprob_to_pb(entry) for entry in delta.prompt_logprobs])
    message.cached_tokens = delta.cached_tokens
    message.queue_s = delta.queue_s
    message.transfer_s = delta.transfer_s
    message.compute_s = delta.compute_s
    message.stays = delta.stays


def frame_to_pb(frame: Frame) -> pb.Frame:
    message = pb.Frame()
    add = message.deltas.add
    for sequence, delta in frame:
        added = add(sequence=sequence, tokens=delta.tokens)
        if (
            delta.finish is not None
            or delta.logprobs
            or delta.cached_tokens
            or delta.queue_s
            or delta.transfer_s
            or delta.compute_s
            or delta.fault is not None
            or delta.prompt_logprobs
            or delta.ticket is not None
            or delta.stays
        ):
            _fill_rare(added, delta)
    return message


def _delta_from_pb(message: pb.SequenceDelta) -> SequenceDelta:
    finish = message.finish
    logprobs = message.logprobs
    prompt_logprobs = message.prompt_logprobs
    return SequenceDelta(
        tokens=tuple(message.tokens),
        logprobs=tuple([logprobs_from_pb(entry) for entry in logprobs]) if logprobs else (),
        finish=known(FINISH_FROM_PB, finish) if finish else None,
        fault=fault_from_pb(message.fault) if message.HasField("fault") else None,
        cached_tokens=message.cached_tokens,
        prompt_logprobs=tuple([prompt_logprob_from_pb(entry) for entry in prompt_logprobs]) if prompt_logprobs else (),
        queue_s=message.queue_s,
        transfer_s=message.transfer_s,
        compute_s=message.compute_s,
        ticket=ticket_from_pb(message.ticket) if message.HasField("ticket") else None,
        stays=message.stays,
    )


def frame_from_pb(message: pb.Frame) -> Frame:
    """News that this build does not understand ends its own sequence and no other."""
    return tuple([(delta.sequence, _delta_or_fault(delta)) for delta in message.deltas])


def _delta_or_fault(message: pb.SequenceDelta) -> SequenceDelta:
    try:
        return _delta_from_pb(message)
    except WireError as error:
        return SequenceDelta((), fault=Fault(FaultKind.INTERNAL, f"the worker's news cannot be understood: {error}"))
