"""From bytes on the wire to a checked body, with every fault a clear 4xx."""

import asyncio
import difflib
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from gateway.config import Deadlines, GatewayConfig
from gateway.http.fields import Body
from gateway.http.intake import Share
from gateway.http.refusals import refuse_unsupported
from gateway.request.errors import Reason, RequestError
from gateway.text.pool import TextPool

#: Up to here a body is parsed at once: handing it to a thread would cost more than it saves.
LARGE_BYTES = 128 * 1024

Form = TypeVar("Form", bound=Body)


class BodyTooLargeError(RequestError):
    """`of_order`: an operator's, which has no prompt and no setting to raise."""

    @property
    def status(self) -> int:
        return 413

    def __init__(self, limit: int, *, of_order: bool) -> None:
        advice = ", the most that an order may have." if of_order else " (max_body_bytes). Send a shorter prompt."
        name = "most_bytes" if of_order else "max_body_bytes"
        super().__init__(
            Reason.INVALID_REQUEST, f"The body is larger than {limit} bytes{advice}", numbers={name: limit}
        )


class BodyTooSlowError(RequestError):
    @property
    def status(self) -> int:
        return 408

    def __init__(self, limit_s: float) -> None:
        super().__init__(Reason.INVALID_REQUEST, f"The body took longer than {limit_s:g} s to arrive.")


async def read_body(
    scope: Scope, receive: Receive, config: GatewayConfig, share: Share, limit: int | None = None
) -> bytes:
    """Refuses by Content-Length before reading and by what really arrived while reading.

    `limit` in bytes is given for orders of operators. `share` counts what has arrived; whoever opened it gives it back.
    """
    of_order = limit is not None
    limit = config.max_body_bytes if limit is None else limit
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise BodyTooLargeError(limit, of_order=of_order)
    clock = asyncio.get_running_loop().time
    end_s = clock() + config.deadlines.body_total_s
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await _message(receive, config.deadlines, end_s - clock())
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyTooLargeError(limit, of_order=of_order)
        share.add(len(part))
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _message(receive: Receive, deadlines: Deadlines, left_s: float) -> dict[str, Any]:
    try:
        async with asyncio.timeout(min(deadlines.body_s, left_s)):
            message = await receive()
    except TimeoutError:
        limit_s = deadlines.body_s if deadlines.body_s < left_s else deadlines.body_total_s
        raise BodyTooSlowError(limit_s) from None
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return dict(message)


async def parsed(data: bytes, form: type[Form], texts: TextPool) -> Form:
    """As parse; a large body in a thread, because one of many small parts takes seconds (B-58)."""
    if len(data) <= LARGE_BYTES:
        return parse(data, form)
    return await texts.run(lambda: parse(data, form))


def parse(data: bytes, form: type[Form]) -> Form:
    """JSON to a checked body. orjson refuses invalid UTF-8, NaN, lone surrogates and bottomless nesting."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise RequestError(Reason.INVALID_REQUEST, f"The body is not valid JSON in UTF-8: {error}.") from None
    if not isinstance(body, dict):
        raise RequestError(Reason.INVALID_REQUEST, "The body must be a JSON object.")
    try:
        return form.model_validate(refuse_unsupported(body, form.model_fields))
    except ValidationError as error:
        raise _refusal(error, form) from None


def _refusal(error: ValidationError, form: type[Body]) -> RequestError:
    """The first fault, by the parameter's path. Never quotes the input, which may be a prompt."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    details.sort(key=lambda detail: -len(detail["loc"]))
    first = details[0]
    param = _path(first["loc"], form)
    if first["type"] == "extra_forbidden":
        return RequestError(Reason.INVALID_REQUEST, _unknown(str(first["loc"][-1]), param, form), param=param)
    text = first["msg"].removeprefix("Value error, ")
    return RequestError(Reason.INVALID_REQUEST, f"`{param}`: {text[:1].lower()}{text[1:]}.", param=param)


def _unknown(name: str, param: str, form: type[Body]) -> str:
    near = difflib.get_close_matches(name, list(form.model_fields), n=1) if param == name else []
    hint = f" Did you mean `{near[0]}`?" if near else " Leave it out."
    return f"Unknown parameter `{param}`.{hint}"


def _path(loc: tuple[int | str, ...], form: type[Body]) -> str:
    """`messages[0].content`, without the branch names that unions add to an error's location."""
    path = ""
    for at, part in enumerate(loc):
        if isinstance(part, int):
            path += f"[{part}]"
        elif at == 0:
            path = part[:64]
        elif part.isidentifier() and part not in ("str", "int", "float", "bool", "dict"):
            path += f".{part[:64]}"
    return path or "body"
