"""One HTTP exchange: who asks, under which ids, since when."""

import os
import re
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope, Send

_UNSAFE = re.compile(r"[^A-Za-z0-9._:@/+=-]")
MAX_CLIENT_ID = 128
MAX_NUMBER = 32


@dataclass(slots=True)
class Exchange:
    """`request_id` is ours and always fresh; `client_id` is only ever echoed, so duplicates do no harm."""

    request_id: str
    client_id: str
    started_s: float
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
    timings = False
    max_wait = ""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and not client_id:
            client_id = _UNSAFE.sub("", value.decode("latin-1"))[:MAX_CLIENT_ID]
        elif name == b"x-tandem-timing":
            timings = value.strip().lower() in (b"1", b"true", b"yes")
        elif name == b"x-tandem-max-wait":
            max_wait = value.strip()[:MAX_NUMBER].decode("latin-1")
    return Exchange(os.urandom(12).hex(), client_id, now_s, timings=timings, max_wait=max_wait)


def of(scope: Scope | dict[str, Any]) -> Exchange:
    """The exchange that the edge put into the scope."""
    exchange: Exchange = scope["tandem"]
    return exchange
