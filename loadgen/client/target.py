"""The endpoint under load: what it is called, what it understands, how a request to it looks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import orjson

from loadgen.client.prompts import PromptWriter
from loadgen.client.stages import ASK
from loadgen.client.wire import Endpoint
from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from tandem.address import with_scheme


class Surface(StrEnum):
    CHAT = "chat"
    COMPLETIONS = "completions"


class Prompts(StrEnum):
    TEXT = "text"
    IDS = "ids"


class Output(StrEnum):
    #: The planned length exactly: max_tokens with ignore_eos, and min_tokens where known.
    EXACT = "exact"
    #: max_tokens only; the model may stop earlier.
    CAP = "cap"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Extensions the target accepts, found out before the run."""

    continuous_usage: bool = True
    ignore_eos: bool = True
    min_tokens: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """`base` is the URL without the `/v1/…` part. `headers` may contain {tenant} and {class}."""

    base: str
    model: str = ""
    surface: Surface = Surface.COMPLETIONS
    prompts: Prompts = Prompts.TEXT
    output: Output = Output.EXACT
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    dialect: Dialect = Dialect()
    verify_tls: bool = True

    @property
    def endpoint(self) -> Endpoint:
        parts = urlsplit(self.base)
        tls = parts.scheme == "https"
        return Endpoint(parts.hostname or "", parts.port or (443 if tls else 80), tls, self.verify_tls)

    @property
    def path(self) -> str:
        return f"{self.prefix}/v1/{'chat/completions' if self.surface is Surface.CHAT else 'completions'}"

    @property
    def prefix(self) -> str:
        return urlsplit(self.base).path

    @property
    def origin(self) -> str:
        return urlsplit(self.base).netloc.rpartition("@")[2]


def base_url(text: str) -> str:
    """Accepts what people paste: with or without /v1 or a trailing slash."""
    text = with_scheme(text.strip())
    parts = urlsplit(text)
    try:
        bad = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        bad = True
    if bad:
        raise LoadgenError(f"target: {text!r} is not an http:// or https:// address")
    path = parts.path.rstrip("/").removesuffix("/chat/completions").removesuffix("/completions").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}"


def post(target: Target, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
    """A whole HTTP request."""
    payload = orjson.dumps(body)
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {target.origin}",
        "Content-Type: application/json",
        "Accept: text/event-stream, application/json",
        f"Content-Length: {len(payload)}",
        *(f"{name}: {value}" for name, value in {**ASK, **target.headers, **(headers or {})}.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + payload


def get(target: Target, path: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", f"Host: {target.origin}", "Accept: */*"]
    lines += [f"{name}: {value}" for name, value in target.headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def request_bytes(target: Target, writer: PromptWriter, demand: Demand, index: int) -> bytes:
    """The request for one demand; always streamed."""
    names = {"{tenant}": demand.tenant, "{class}": demand.klass}
    headers = {name: _filled(value, names) for name, value in target.headers.items() if "{" in value}
    return post(target, target.path, body_of(target, writer, demand, index), headers)


def body_of(target: Target, writer: PromptWriter, demand: Demand, index: int) -> dict[str, Any]:
    body: dict[str, Any] = {"model": target.model}
    if target.surface is Surface.CHAT:
        body["messages"] = [{"role": "user", "content": writer.text(demand, index, chat=True)}]
    elif target.prompts is Prompts.IDS:
        body["prompt"] = writer.ids(demand, index)
    else:
        body["prompt"] = writer.text(demand, index)
    body |= {"max_tokens": demand.output_tokens, "temperature": 0, "stream": True}
    body["stream_options"] = {"include_usage": True}
    if target.dialect.continuous_usage:
        body["stream_options"]["continuous_usage_stats"] = True
    if target.output is Output.EXACT and target.dialect.ignore_eos:
        body["ignore_eos"] = True
        if target.dialect.min_tokens:
            body["min_tokens"] = demand.output_tokens
    if demand.tenant:
        body["user"] = demand.tenant
    return body | dict(target.extra)


def _filled(value: str, names: Mapping[str, str]) -> str:
    for name, text in names.items():
        value = value.replace(name, text)
    return value
