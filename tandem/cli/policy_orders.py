"""One order about the policy to one gateway, or to all replicas: every one follows, or none."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tandem.cli.failure import CliError, Exit, gateway_errors

if TYPE_CHECKING:
    from tandem.client import GatewayClient

Document = dict[str, Any]
Done = TypeVar("Done")

#: What a gateway calls a document that is no policy.
_WRONG = "invalid_policy"


def at_one(endpoint: str, api_key: str, ask: "Callable[[GatewayClient], Awaitable[Document]]") -> Document:
    """Raises CliError."""
    from tandem.client import GatewayClient

    async def asked() -> Document:
        async with GatewayClient(endpoint, api_key) as gateway:
            return await ask(gateway)

    return _run(asked())


def at_all(
    endpoints: Sequence[str],
    api_key: str,
    method: str,
    what: str,
    body: Document,
    *,
    check: Document | None = None,
    undo: str = "rollback",
) -> dict[str, Document]:
    """By endpoint. `check` is asked for everywhere before anything is changed anywhere; where one gateway fails all the
    same, those that have followed go back: by `undo`, with "" by nothing. Raises CliError."""
    return _run(_at_all(tuple(dict.fromkeys(endpoints)), api_key, method, what, body, check, undo))


async def _at_all(
    endpoints: Sequence[str], api_key: str, method: str, what: str, body: Document, check: Document | None, undo: str
) -> dict[str, Document]:
    warnings: dict[str, list[str]] = {}
    if check is not None:
        for url in endpoints:
            checked = await _ask(url, api_key, "POST", "check", {"settings": check})
            warnings[url] = checked.get("warnings", [])
    replies: dict[str, Document] = {}
    for url in endpoints:
        try:
            replies[url] = await _ask(url, api_key, method, what, body)
        except Exception as error:
            if undone := await _undo(replies, api_key, undo):
                error.args = (f"{error}; {undone}",)
            raise
        replies[url].setdefault("warnings", warnings.get(url, []))
    return replies


async def _undo(replies: dict[str, Document], api_key: str, undo: str) -> str:
    """What became of the gateways that had followed; empty where there was none."""
    from tandem.client import GatewayRefusedError, GatewayUnreachableError

    said = []
    for url, reply in replies.items():
        if not undo or reply.get("before") == reply["policy"]:
            continue
        body = {"note": "another gateway could not follow"}
        if undo == "rollback":
            body["version"] = reply["before"]
        try:
            await _ask(url, api_key, "POST", undo, body)
            said.append(f"{url} is back at {reply.get('before', 'the policy in force')}")
        except (GatewayRefusedError, GatewayUnreachableError) as error:
            said.append(f"{url} STILL HAS {reply['policy']} ({error})")
    return "; ".join(said)


async def _ask(url: str, api_key: str, method: str, what: str, body: Document) -> Document:
    from tandem.client import GatewayClient

    async with GatewayClient(url, api_key) as gateway:
        return await gateway.change_policy(method, what, **body)


def _run(work: Coroutine[Any, Any, Done]) -> Done:
    from tandem.client import GatewayRefusedError

    with gateway_errors():
        try:
            return asyncio.run(work)
        except GatewayRefusedError as error:
            if error.code == _WRONG:
                raise CliError(Exit.CONFIG, str(error)) from error
            raise
