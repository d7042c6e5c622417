"""Errors as OpenAI clients expect them, with the numbers and the wait that a refusal owes (invariant 9)."""

import math
from collections.abc import Mapping

import orjson
from starlette.responses import Response

from gateway.request.errors import Reason, RequestError

JSON = "application/json"


def error_type(status: int) -> str:
    if status == 401:
        return "authentication_error"
    if status == 403:
        return "permission_error"
    if status == 429:
        return "rate_limit_error"
    if status < 500:
        return "invalid_request_error"
    return "overloaded_error" if status == 503 else "server_error"


def error_object(error: RequestError) -> dict[str, object]:
    body: dict[str, object] = {
        "message": error.message,
        "type": error_type(error.status),
        "param": error.param,
        "code": error.reason.value,
    }
    if error.numbers:
        body["numbers"] = error.numbers
    if error.policy:
        body["policy"] = error.policy
    if error.retry_after_s is not None:
        body["retry_after_s"] = round(error.retry_after_s, 3)
    return {"error": body}


def error_bytes(error: RequestError) -> bytes:
    return orjson.dumps(error_object(error))


def error_headers(error: RequestError) -> dict[str, str]:
    """The reason, for proxies that log no bodies; and whole seconds, at least one: Retry-After: 0 would invite a storm."""
    wait_s = error.retry_after_s
    if wait_s is None and error.status in (429, 503):
        wait_s = 1.0
    reason = {"x-tandem-reason": error.reason.value}
    return reason if wait_s is None else {**reason, "retry-after": str(max(1, math.ceil(wait_s)))}


def error_response(error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    return Response(error_bytes(error), error.status, {**error_headers(error), **(headers or {})}, JSON)


def plain_error(status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response:
    """For faults of the HTTP exchange itself, which have no Reason: wrong path, wrong method."""
    body = {"error": {"message": message, "type": error_type(status), "param": None, "code": code}}
    return Response(orjson.dumps(body), status, headers, JSON)


def no_such_path(method: str, path: str) -> Response:
    return plain_error(404, f"No such path: {method} {path[:200]}.", "not_found")


def internal(error: BaseException) -> RequestError:
    """What a client sees of a defect: that there is one, and nothing else."""
    return RequestError(Reason.INTERNAL, f"Internal error ({type(error).__name__}). The gateway's log has the details.")
