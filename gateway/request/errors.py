"""Every way a request can end badly, as a closed list with the status the client sees."""

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    """Closed list. The value is the OpenAI-style `code` and the metric label."""

    # the request is at fault (4xx)
    INVALID_REQUEST = "invalid_request"
    UNSUPPORTED = "unsupported_parameter"
    MODEL_NOT_FOUND = "model_not_found"
    INVALID_API_KEY = "invalid_api_key"
    CONTEXT_LENGTH = "context_length_exceeded"
    KV_CAPACITY = "kv_capacity"
    # over capacity (429 / 503), with Retry-After
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    RATE_LIMITED = "rate_limited"
    CONCURRENCY_LIMITED = "concurrency_limited"
    TTFT_UNREACHABLE = "ttft_unreachable"
    DECODE_OVERLOADED = "decode_overloaded"
    NO_PREFILL_WORKER = "no_prefill_worker"
    NO_DECODE_WORKER = "no_decode_worker"
    DRAINING = "draining"
    # something broke (5xx)
    PREFILL_FAILED = "prefill_failed"
    PREFILL_TIMEOUT = "prefill_timeout"
    HANDOFF_FAILED = "handoff_failed"
    DECODE_FAILED = "decode_failed"
    FIRST_TOKEN_TIMEOUT = "first_token_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    REQUEST_TIMEOUT = "request_timeout"
    WORKER_LOST = "worker_lost"
    INTERNAL = "internal_error"
    # nobody sees it
    CLIENT_GONE = "client_gone"


STATUS: dict[Reason, int] = {
    Reason.INVALID_REQUEST: 400,
    Reason.UNSUPPORTED: 400,
    Reason.MODEL_NOT_FOUND: 404,
    Reason.INVALID_API_KEY: 401,
    Reason.CONTEXT_LENGTH: 400,
    Reason.KV_CAPACITY: 400,
    Reason.QUEUE_FULL: 429,
    Reason.QUEUE_TIMEOUT: 503,
    Reason.RATE_LIMITED: 429,
    Reason.CONCURRENCY_LIMITED: 429,
    Reason.TTFT_UNREACHABLE: 503,
    Reason.DECODE_OVERLOADED: 503,
    Reason.NO_PREFILL_WORKER: 503,
    Reason.NO_DECODE_WORKER: 503,
    Reason.DRAINING: 503,
    Reason.PREFILL_FAILED: 502,
    Reason.PREFILL_TIMEOUT: 504,
    Reason.HANDOFF_FAILED: 502,
    Reason.DECODE_FAILED: 502,
    Reason.FIRST_TOKEN_TIMEOUT: 504,
    Reason.IDLE_TIMEOUT: 504,
    Reason.REQUEST_TIMEOUT: 504,
    Reason.WORKER_LOST: 502,
    Reason.INTERNAL: 500,
    Reason.CLIENT_GONE: 499,
}

#: Reasons that mean "refused", not "broken": nothing was computed that the client could have used.
REJECTIONS = frozenset(
    {
        Reason.KV_CAPACITY,
        Reason.CONTEXT_LENGTH,
        Reason.INVALID_REQUEST,
        Reason.QUEUE_FULL,
        Reason.QUEUE_TIMEOUT,
        Reason.RATE_LIMITED,
        Reason.CONCURRENCY_LIMITED,
        Reason.TTFT_UNREACHABLE,
        Reason.DECODE_OVERLOADED,
        Reason.NO_PREFILL_WORKER,
        Reason.NO_DECODE_WORKER,
        Reason.DRAINING,
    }
)


class RequestError(Exception):
    """Ends a request. `message` names the cause and the fix; `numbers` are the figures behind a refusal, and `policy`
    the version of the policy that refused."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        numbers: Mapping[str, float] | None = None,
        policy: str = "",
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.numbers = dict(numbers or {})
        self.policy = policy

    @property
    def status(self) -> int:
        return STATUS[self.reason]
