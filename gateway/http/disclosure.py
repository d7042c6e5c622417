"""What is said to whom. Where keys are configured, names of workers, gRPC's words and paths are for operators only."""

import logging

from gateway.http.exchange import Exchange
from gateway.request.errors import Reason, RequestError

log = logging.getLogger(__name__)

_AGAIN = "Try again; if it stays so, tell whoever runs this service the request id."

#: Reasons whose messages come from inside the fleet, and what a client needs to know of them: the cause.
_CAUSES: dict[Reason, str] = {
    Reason.NO_PREFILL_WORKER: "No worker that computes prompts can take this request now. Try again later.",
    Reason.NO_DECODE_WORKER: "No worker that produces answers can take this request now. Try again later.",
    Reason.PREFILL_FAILED: f"Computing the prompt failed. {_AGAIN}",
    Reason.PREFILL_TIMEOUT: f"Computing the prompt took too long. {_AGAIN}",
    Reason.HANDOFF_FAILED: f"Moving the computed prompt to where the answer is produced failed. {_AGAIN}",
    Reason.DECODE_FAILED: f"Producing the answer failed. {_AGAIN}",
    Reason.FIRST_TOKEN_TIMEOUT: f"The answer did not begin in time. {_AGAIN}",
    Reason.IDLE_TIMEOUT: f"The answer stopped coming. {_AGAIN}",
    Reason.WORKER_LOST: f"A worker was lost while it served this request. {_AGAIN}",
    Reason.INTERNAL: f"Internal error. {_AGAIN}",
}


def disclosed(error: RequestError, exchange: Exchange) -> RequestError:
    """The error as this caller may see it; what is held back goes to the log, under the request's id."""
    cause = _CAUSES.get(error.reason)
    if exchange.cleared or cause is None:
        return error
    log.warning("request %s: %s: %s", exchange.request_id, error.reason.value, error.message)
    return RequestError(
        error.reason,
        cause,
        param=error.param,
        retry_after_s=error.retry_after_s,
        numbers=error.numbers,
        policy=error.policy,
    )


def headline(missing: str) -> str:
    """Of what keeps a gateway from serving, the part before the workers, pairs and paths."""
    return missing.partition(":")[0].partition(" (")[0]
