"""Sends spans to a collector, beside the requests and never in their way."""

import asyncio
import logging
import time
from collections import deque
from types import TracebackType
from typing import Self

import httpx
import orjson

from gateway.config import TracesConfig
from gateway.observe.surface_observer import SilentSurfaceObserver
from gateway.observe.tracing.spans import document
from gateway.request.record import Record

log = logging.getLogger(__name__)

#: Requests that wait to be sent; what ends beyond is not traced.
MOST = 4096
#: Requests in one message.
BATCH = 256
#: Between two messages, where there are fewer.
EVERY_S = 2.0
#: For one message, and at the end for all that are left.
PATIENCE_S = 5.0


class SpanExporter(SilentSurfaceObserver):
    """Keeps what has ended and sends it in batches while it is entered. What cannot be sent is lost, with a word in the log."""

    def __init__(self, config: TracesConfig, every_s: float = EVERY_S) -> None:
        self._config = config
        self._every_s = every_s
        self._url = config.endpoint.rstrip("/") + "/v1/traces"
        self._waiting: deque[Record] = deque()
        self._full = asyncio.Event()
        self._stopping = False
        self._sending: asyncio.Task[None] | None = None
        self._trouble = ""
        self.lost = 0

    def ended(self, record: Record) -> None:
        if not self._sampled(record):
            return
        if len(self._waiting) >= MOST:
            self._lose(1, f"more than {MOST} requests wait to be sent")
            return
        self._waiting.append(record)
        if len(self._waiting) >= BATCH:
            self._full.set()

    def _sampled(self, record: Record) -> bool:
        """As the client's trace is; of others a share, by their ids."""
        if record.trace is not None:
            return record.trace.sampled
        share = self._config.share
        return share >= 1 or int(record.request_id[:8], 16) < share * 0x1_0000_0000

    async def __aenter__(self) -> Self:
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it has a line for every message
        self._sending = asyncio.create_task(self._again_and_again(), name="traces")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._full.set()
        if self._sending is not None:
            _, late = await asyncio.wait({self._sending}, timeout=PATIENCE_S)
            for task in late:
                task.cancel()
            await asyncio.wait({self._sending})
        if left := len(self._waiting):
            self._lose(left, "the gateway has ended")

    async def _again_and_again(self) -> None:
        headers = {name: value.get_secret_value() for name, value in self._config.headers.items()}
        headers["content-type"] = "application/json"
        async with httpx.AsyncClient(headers=headers, timeout=PATIENCE_S, trust_env=False) as client:
            while not (self._stopping and not self._waiting):
                if len(self._waiting) < BATCH and not self._stopping:
                    await self._pause()
                if self._waiting:
                    await self._send(client, [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))])

    async def _pause(self) -> None:
        self._full.clear()
        try:
            async with asyncio.timeout(self._every_s):
                await self._full.wait()
        except TimeoutError:
            pass

    async def _send(self, client: httpx.AsyncClient, records: list[Record]) -> None:
        """Whatever is wrong with a batch or its way costs that batch; the next may be well."""
        trouble = "the gateway has ended"
        try:
            epoch_s = time.time() - time.monotonic()
            body = orjson.dumps(document(records, epoch_s, self._config.service))
            # Its head says all; a body that drips or has no end is not read.
            async with asyncio.timeout(PATIENCE_S), client.stream("POST", self._url, content=body) as reply:
                trouble = "" if reply.is_success else f"answered {reply.status_code}"
        except TimeoutError:
            trouble = f"no answer within {PATIENCE_S:g} s"
        except Exception as error:  # a span must never end the gateway's telling of the others
            trouble = str(error) or type(error).__name__
        finally:
            if trouble:
                self._lose(len(records), trouble)
        if not trouble and self._trouble:
            self._trouble = ""
            log.info("traces are sent to %s again; those of %d requests were lost", self._url, self.lost)

    def _lose(self, count: int, trouble: str) -> None:
        """Told once for each kind of trouble."""
        self.lost += count
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("traces cannot be sent to %s: %s", self._url, trouble)
