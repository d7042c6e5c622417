"""The prefill leg's answer."""

from proto.convert.common import (
    fault_from_pb,
    fault_to_pb,
    logprobs_from_pb,
    logprobs_to_pb,
    prompt_logprob_from_pb,
    prompt_logprob_to_pb,
    ticket_from_pb,
    ticket_to_pb,
)
from proto.convert.enums import FINISH_FROM_PB, FINISH_TO_PB, WireError, known
from proto.fault import Fault
from proto.tandem.v1 import common_pb2
from proto.tandem.v1 import prefill_pb2 as pb
from proto.work import PrefillDone


def prefill_done_to_pb(done: PrefillDone) -> pb.PrefillDone:
    return pb.PrefillDone(
        ticket=None if done.ticket is None else ticket_to_pb(done.ticket),
        tokens=done.tokens,
        logprobs=[logprobs_to_pb(entry) for entry in done.logprobs],
        finish=common_pb2.FINISH_REASON_UNSPECIFIED if done.finish is None else FINISH_TO_PB[done.finish],
        cached_tokens=done.cached_tokens,
        prompt_logprobs=[prompt_logprob_to_pb(entry) for entry in done.prompt_logprobs],
        queue_s=done.queue_s,
        compute_s=done.compute_s,
    )


def prefill_done_from_pb(message: pb.PrefillDone) -> PrefillDone:
    return PrefillDone(
        tokens=tuple(message.tokens),
        ticket=ticket_from_pb(message.ticket) if message.HasField("ticket") else None,
        finish=known(FINISH_FROM_PB, message.finish) if message.finish else None,
        logprobs=tuple([logprobs_from_pb(entry) for entry in message.logprobs]),
        cached_tokens=message.cached_tokens,
        prompt_logprobs=tuple([prompt_logprob_from_pb(entry) for entry in message.prompt_logprobs]),
        queue_s=message.queue_s,
        compute_s=message.compute_s,
    )


def prefill_reply_to_pb(reply: PrefillDone | Fault) -> pb.PrefillReply:
    if isinstance(reply, Fault):
        return pb.PrefillReply(fault=fault_to_pb(reply))
    return pb.PrefillReply(done=prefill_done_to_pb(reply))


def prefill_reply_from_pb(message: pb.PrefillReply) -> PrefillDone | Fault:
    match message.WhichOneof("result"):
        case "done":
            return prefill_done_from_pb(message.done)
        case "fault":
            return fault_from_pb(message.fault)
        case _:
            raise WireError("a PrefillReply carries neither a result nor a fault")
