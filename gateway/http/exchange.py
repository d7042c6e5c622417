"""One HTTP exchange: who asks, under which ids, since when."""

import os
import re
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope, Send

from gateway.request.trace import Trace

#: traceparent of the W3C: version, trace, parent, flags. Version ff is none, and later ones may have more parts.
_TRACE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-|$)")
_SAMPLED = 1
_UNSAFE = re.compile(r"[^A-Za-z0-9._:@/+=-]")
MAX_CLIENT_ID = 128
MAX_NUMBER = 32


@dataclass(slots=True)
class Exchange:
    """`request_id` is ours and always fresh; `client_id` is only ever echoed, so duplicates do no harm."""

    request_id: str
    client_id: str
    started_s: float
    trace: Trace | None = None
    tenant: str = ""
    timings: bool = False  # the client asked for the breakdown by stage
    cleared: bool = True  # may see and change the cluster
    policy: str = ""  # version of the policy that is in force
    max_wait: str = ""  # as the client wrote it
    direct: Send | None = None  # past all layers that look at the head of a response only

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"x-request-id", (self.client_id or self.request_id).encode()),
            (b"x-tandem-request-id", self.request_id.encode()),
            (b"x-tandem-policy", self.policy.encode()),
        ]


def begin(scope: Scope, now_s: float) -> Exchange:
    """The first X-Request-Id counts; characters that could break a log line or a header are dropped."""
    client_id = ""
    trace: Trace | None = None
    timings = False
    max_wait = ""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and not client_id:
            client_id = _UNSAFE.sub("", value.decode("latin-1"))[:MAX_CLIENT_ID]
        elif name == b"traceparent" and (found := _TRACE.match(value)):
            trace = Trace(found[1].decode(), found[2].decode(), bool(int(found[3], 16) & _SAMPLED))
        elif name == b"x-tandem-timing":
            timings = value.strip().lower() in (b"1", b"true", b"yes")
        elif name == b"x-tandem-max-wait":
            max_wait = value.strip()[:MAX_NUMBER].decode("latin-1")
    return Exchange(os.urandom(12).hex(), client_id, now_s, trace, timings=timings, max_wait=max_wait)


def of(scope: Scope | dict[str, Any]) -> Exchange:
    """The exchange that the edge put into the scope."""
    exchange: Exchange = scope["tandem"]
    return exchange
