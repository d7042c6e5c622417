"""A request as vLLM takes it, and what is refused before it sees it."""

from typing import Any

from engine.vllm.launch import Core
from engine.vllm.outputs import Live
from engine.vllm.sampling import to_vllm
from engine.vllm.tickets import Handoff
from proto.fault import Fault, FaultError, FaultKind
from proto.precedence import rank
from proto.work import Work
from proto.worker import WorkerInfo


def refuse_impossible(work: Work, info: WorkerInfo) -> None:
    """Raises FaultError."""
    numbers = {"prompt_tokens": len(work.tokens), "window": info.max_model_len}
    if len(work.tokens) >= info.max_model_len:
        message = f"{len(work.tokens)} tokens leave no room for an answer in a window of {info.max_model_len}"
        raise FaultError(Fault(FaultKind.CONTEXT_LENGTH, message, numbers))
    capacity = info.blocks_total * info.block_size_tokens
    if len(work.tokens) >= capacity:
        message = f"{len(work.tokens)} tokens can never fit the {capacity} that this engine's KV holds"
        raise FaultError(Fault(FaultKind.KV_CAPACITY, message, numbers | {"capacity": capacity}))


def request_of(core: Core, live: Live, handoff: Handoff | None) -> Any:
    """Raises FaultError."""
    from vllm.inputs.engine import tokens_input

    work = live.work
    kv_transfer: dict[str, Any] | None = None
    if handoff is not None:
        kv_transfer = handoff.to_engine()
    elif live.hold:
        kv_transfer = {"do_remote_decode": True}
    try:
        request = core.inputs.process_inputs(
            request_id=live.core_id,
            prompt=tokens_input(list(work.tokens), cache_salt=work.cache_salt or None),
            params=to_vllm(work.sampling, kv_transfer),
            supported_tasks=("generate",),
            priority=rank(work.priority, work.precedence),
        )
    except Exception as error:  # whatever validation raises, it is about this request alone
        raise FaultError(Fault(FaultKind.INVALID_REQUEST, str(error))) from error
    request.external_req_id = work.request_id
    return request
