"""What the command line asks of a running gateway."""

import dataclasses
import types
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

import httpx

from gateway.cluster.snapshot import ClusterSnapshot
from gateway.policy.control.rows import PolicySnapshot
from tandem.address import with_scheme
from tandem.printable import printable

TIMEOUT_S = 5.0
_LAST_PORT = 65535
#: A gateway speaks of the header, which nobody sends by hand here.
_KEY = " (here: --api-key KEY, or TANDEM_API_KEY)"


class GatewayUnreachableError(Exception):
    """Nobody answers at the endpoint; the message says what to try."""


class GatewayRefusedError(Exception):
    """The gateway answered with an error; `code` is its own name for it."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True, slots=True)
class Readiness:
    ready: bool
    detail: str


class GatewayClient:
    """Thin: one method a question. Close it, or use it as an asynchronous context manager. `named_by`: the option that
    said where the gateway is."""

    def __init__(self, endpoint: str, api_key: str = "", *, named_by: str = "--endpoint") -> None:
        self._named_by = named_by
        headers = httpx.Headers({"Authorization": f"Bearer {api_key}"} if api_key else {}, encoding="utf-8")
        self.endpoint = with_scheme(endpoint).rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=_address(self.endpoint, endpoint), headers=headers, timeout=TIMEOUT_S, trust_env=False
        )

    async def __aenter__(self) -> "GatewayClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def readiness(self) -> Readiness:
        reply = await self._send("GET", "/readyz")
        return Readiness(reply.status_code == httpx.codes.OK, reply.text)

    async def status(self) -> dict[str, Any]:
        """The status document as it is."""
        return self._document(await self._send("GET", "/tandem/v1/status"))

    async def decisions(self, request_id: str) -> dict[str, Any]:
        """Why a recent request was served or refused as it was."""
        reply = await self._send("GET", f"/tandem/v1/decisions/{quote(request_id, safe='')}")
        return self._document(reply)

    async def traffic(self, within_s: float | None = None, *, rows: bool = False) -> dict[str, Any]:
        """Arrivals, lengths and drifts of late; with `rows` each request of those."""
        within = "" if within_s is None else f"&within_s={within_s:g}"
        reply = await self._send("GET", f"/tandem/v1/traffic?rows={int(rows)}{within}")
        return self._document(reply)

    async def drain(self, worker_id: str, resume: bool) -> dict[str, Any]:
        reply = await self._send(
            "POST", f"/tandem/v1/workers/{quote(worker_id, safe='')}/drain", json={"resume": resume}
        )
        return self._document(reply)

    async def set_role(self, worker_id: str, role: str) -> dict[str, Any]:
        reply = await self._send("POST", f"/tandem/v1/workers/{quote(worker_id, safe='')}/role", json={"role": role})
        return self._document(reply)

    async def policy(self, what: str = "") -> dict[str, Any]:
        """The policy in force, or of its pages `history` or `canary`."""
        return self._document(await self._send("GET", _policy_path(what)))

    async def change_policy(self, method: str, what: str = "", **body: Any) -> dict[str, Any]:
        """`what` is a page below the policy's own; the gateway does all of it or nothing."""
        return self._document(await self._send(method, _policy_path(what), json=body))

    async def models(self) -> list[str]:
        return [model["id"] for model in self._document(await self._send("GET", "/v1/models"))["data"]]

    async def _send(self, method: str, path: str, json: Any = None) -> httpx.Response:
        try:
            return await self._http.request(method, path, json=json)
        except httpx.TransportError as e:
            raise GatewayUnreachableError(
                f"no gateway answers at {self.endpoint} ({_cause(e)}); start one with `tandem up`, "
                f"or name another with {self._named_by}"
            ) from e

    def _document(self, reply: httpx.Response) -> dict[str, Any]:
        """Something else than a gateway may answer 200 to everything, with a page for people."""
        try:
            document = self._checked(reply).json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise self._no_gateway(reply)
        return document

    def _checked(self, reply: httpx.Response) -> httpx.Response:
        if reply.is_success:
            return reply
        try:
            error = reply.json()["error"]
            message, code = error["message"], str(error.get("code", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._no_gateway(reply) from None
        how = _KEY if reply.status_code == httpx.codes.UNAUTHORIZED else ""
        raise GatewayRefusedError(f"the gateway answered {reply.status_code}: {printable(str(message))}{how}", code)

    def _no_gateway(self, reply: httpx.Response) -> GatewayUnreachableError:
        return GatewayUnreachableError(
            f"what answers at {self.endpoint} is no gateway (status {reply.status_code}); "
            f"name the gateway with {self._named_by}"
        )


def _address(url: str, given: str) -> httpx.URL:
    """`given`: what the user wrote, which is what the error names."""
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as e:
        raise GatewayUnreachableError(f"{given!r} is no address ({e}); write http://HOST:PORT") from e
    if address.scheme not in ("http", "https") or not address.host or (address.port or 1) > _LAST_PORT:
        raise GatewayUnreachableError(f"{given!r} is no address of a gateway; write http://HOST:PORT")
    return address


def _policy_path(what: str) -> str:
    return f"/tandem/v1/policy/{what}" if what else "/tandem/v1/policy"


def _cause(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.ConnectError):
        return "connection refused" if "refused" in str(error) or "attempts failed" in str(error) else str(error)
    if isinstance(error, httpx.TimeoutException):
        return f"no answer in {TIMEOUT_S:.0f} s"
    return str(error) or type(error).__name__


def snapshot_of(document: dict[str, Any]) -> ClusterSnapshot:
    """Reads the cluster's part of a status document; what a gateway of another version leaves out is empty."""
    snapshot: ClusterSnapshot = _read(ClusterSnapshot, document.get("cluster", document))
    return snapshot


def policy_of(document: dict[str, Any]) -> PolicySnapshot | None:
    """Reads the policy's part; None where the gateway does not tell it."""
    policy = document.get("policy")
    return _read(PolicySnapshot, policy) if policy else None


def _read(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _read(next(option for option in get_args(kind) if option is not type(None)), value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        given = value or {}
        return kind(
            **{field.name: _read(hints[field.name], given.get(field.name)) for field in dataclasses.fields(kind)}
        )
    if origin is tuple:
        return tuple(_read(get_args(kind)[0], item) for item in value or ())
    if origin is dict:
        return dict(value or {})
    if kind is str:
        return printable(str(value or ""))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value) if value is not None else next(iter(kind))
    return kind(value) if value is not None else kind()
