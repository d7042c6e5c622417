"""Faults, sampling, tickets, logprobs and work."""

from proto.convert.enums import FAULT_FROM_PB, FAULT_TO_PB, STRUCTURED_FROM_PB, STRUCTURED_TO_PB, known
from proto.fault import Fault, FaultKind
from proto.precedence import Precedence
from proto.sampling import Sampling, StructuredOutput
from proto.tandem.v1 import common_pb2 as pb
from proto.ticket import Ticket
from proto.work import TokenLogprobs, Work

_PRECEDENCE_TO_PB = {
    Precedence.BEGUN: pb.PRECEDENCE_BEGUN,
    Precedence.ORDINARY: pb.PRECEDENCE_UNSPECIFIED,
    Precedence.LATE: pb.PRECEDENCE_LATE,
}
_PRECEDENCE_FROM_PB = {int(number): precedence for precedence, number in _PRECEDENCE_TO_PB.items()}


def fault_to_pb(fault: Fault) -> pb.Fault:
    return pb.Fault(kind=FAULT_TO_PB[fault.kind], message=fault.message, numbers=fault.numbers)


def fault_from_pb(message: pb.Fault) -> Fault:
    # A newer worker may know faults that we do not: still a fault, and the text says which.
    kind = FAULT_FROM_PB.get(message.kind, FaultKind.INTERNAL)
    return Fault(kind, message.message, dict(message.numbers))


def sampling_to_pb(sampling: Sampling) -> pb.Sampling:
    structured = sampling.structured
    return pb.Sampling(
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        seed=sampling.seed,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        logit_bias=dict(sampling.logit_bias),
        logprobs=sampling.logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
        structured=None
        if structured is None
        else pb.StructuredOutput(kind=STRUCTURED_TO_PB[structured.kind], json_schema=structured.json_schema),
    )


def sampling_from_pb(message: pb.Sampling) -> Sampling:
    structured = message.structured if message.HasField("structured") else None
    return Sampling(
        max_tokens=message.max_tokens,
        min_tokens=message.min_tokens,
        temperature=message.temperature,
        top_p=message.top_p,
        top_k=message.top_k,
        min_p=message.min_p,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        repetition_penalty=message.repetition_penalty,
        seed=message.seed if message.HasField("seed") else None,
        stop_token_ids=tuple(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        logit_bias=tuple(sorted(message.logit_bias.items())),
        logprobs=message.logprobs if message.HasField("logprobs") else None,
        prompt_logprobs=message.prompt_logprobs if message.HasField("prompt_logprobs") else None,
        structured=None
        if structured is None
        else StructuredOutput(known(STRUCTURED_FROM_PB, structured.kind), structured.json_schema),
    )


def ticket_to_pb(ticket: Ticket) -> pb.Ticket:
    return pb.Ticket(
        ticket_id=ticket.ticket_id,
        worker_id=ticket.worker_id,
        epoch=ticket.epoch,
        engine_params=ticket.engine_params,
        computed_tokens=ticket.computed_tokens,
        blocks=ticket.blocks,
        block_size_tokens=ticket.block_size_tokens,
        kv_bytes=ticket.kv_bytes,
        lease_s=ticket.lease_s,
        age_s=ticket.age_s,
    )


def ticket_from_pb(message: pb.Ticket) -> Ticket:
    return Ticket(
        ticket_id=message.ticket_id,
        worker_id=message.worker_id,
        epoch=message.epoch,
        engine_params=message.engine_params,
        computed_tokens=message.computed_tokens,
        blocks=message.blocks,
        block_size_tokens=message.block_size_tokens,
        kv_bytes=message.kv_bytes,
        lease_s=message.lease_s,
        age_s=message.age_s,
    )


def logprobs_to_pb(logprobs: TokenLogprobs) -> pb.TokenLogprobs:
    return pb.TokenLogprobs(token_ids=logprobs.token_ids, logprobs=logprobs.logprobs, ranks=logprobs.ranks)


def logprobs_from_pb(message: pb.TokenLogprobs) -> TokenLogprobs:
    return TokenLogprobs(tuple(message.token_ids), tuple(message.logprobs), tuple(message.ranks))


def prompt_logprob_to_pb(logprobs: TokenLogprobs | None) -> pb.PromptLogprob:
    if logprobs is None:
        return pb.PromptLogprob(present=False)
    return pb.PromptLogprob(present=True, logprobs=logprobs_to_pb(logprobs))


def prompt_logprob_from_pb(message: pb.PromptLogprob) -> TokenLogprobs | None:
    return logprobs_from_pb(message.logprobs) if message.present else None


def work_to_pb(work: Work) -> pb.Work:
    return pb.Work(
        request_id=work.request_id,
        tokens=work.tokens,
        sampling=sampling_to_pb(work.sampling),
        priority=work.priority,
        cache_salt=work.cache_salt,
        precedence=_PRECEDENCE_TO_PB[work.precedence],
    )


def work_from_pb(message: pb.Work) -> Work:
    return Work(
        request_id=message.request_id,
        tokens=tuple(message.tokens),
        sampling=sampling_from_pb(message.sampling),
        priority=message.priority,
        cache_salt=message.cache_salt,
        # What a newer gateway may wish is done in the order of arrival.
        precedence=_PRECEDENCE_FROM_PB.get(message.precedence, Precedence.ORDINARY),
    )
