"""A load client in a process of its own, lean so that the server is what is measured: raw protocols, no parsing.

Reads one JSON document from standard input and writes one line of JSON. With `hold` it says when all streams have
begun and keeps them open until its input ends.
"""

import asyncio
import gc
import json
import os
import sys
import time
from array import array
from typing import Any, cast

import uvloop

_EVENT = b"data: {"
_END = b"0\r\n\r\n"  # the last chunk of a body
_TIMEOUT_S = 60.0


class Stream(asyncio.Protocol):
    """One connection: asks, watches the events come, and asks again while the load says so."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._asked_s = 0.0
        self._last_s = 0.0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        self._ask()

    def data_received(self, data: bytes) -> None:
        now_s = time.perf_counter()
        load = self._load
        if not self._tail and not data.startswith(b"HTTP/1.1 200"):
            load.fail(f"refused: {data[:400].decode(errors='replace')}")
            return
        if events := data.count(_EVENT):
            load.events += events
            if self._last_s:
                if load.opened.is_set():  # while others begin, their prompts are what is measured
                    load.gaps_s.append(now_s - self._last_s)
            else:
                load.first_s.append(now_s - self._asked_s)
                load.begun()
            self._last_s = now_s
        load.bytes += len(data)
        self._tail = (self._tail + data)[-1024:] if len(data) < 1024 else data[-1024:]
        if self._tail.endswith(_END):
            self._ended()

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None and not self._load.over:
            self._load.fail(f"a connection was lost: {error}")

    def _ask(self) -> None:
        assert self._transport is not None
        if not self._load.take():
            transport, self._transport = self._transport, None
            transport.close()
            return
        self._last_s = 0.0
        self._tail = b""
        self._asked_s = time.perf_counter()
        self._transport.write(self._load.request)

    def _ended(self) -> None:
        if self._load.proof and self._load.proof not in self._tail:
            self._load.fail(f"an answer ended without {self._load.proof!r}: {self._tail[-300:]!r}")
            return
        self._load.answered()
        self._ask()


class Load:
    """All streams of this process. `proof` must be in the last kilobyte of every answer."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.request = spec["request"].encode()
        self.proof = spec.get("proof", "").encode()
        self.hold = bool(spec.get("hold"))
        self.connections: int = spec["connections"]
        self._left: int = spec["requests"]
        self._unanswered = self._left
        self._unopened = self.connections
        self.events = 0
        self.bytes = 0
        self.first_s = array("d")
        self.gaps_s = array("d")
        self.over = False
        self.error = ""
        self.opened = asyncio.Event()
        self.done = asyncio.Event()

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def begun(self) -> None:
        self._unopened -= 1
        if self._unopened <= 0:
            self.opened.set()

    def answered(self) -> None:
        self._unanswered -= 1
        if self._unanswered == 0:
            self.over = True
            self.done.set()

    def fail(self, error: str) -> None:
        self.error = self.error or error
        self.over = True
        self.opened.set()
        self.done.set()

    def figures(self, wall_s: float, cpu_s: float) -> dict[str, Any]:
        return {
            "error": self.error,
            "wall_s": wall_s,
            "cpu_s": cpu_s,
            "events": self.events,
            "bytes": self.bytes,
            "first_s": list(self.first_s),
            "gaps_s": list(self.gaps_s),
        }


async def run(spec: dict[str, Any]) -> None:
    load = Load(spec)
    loop = asyncio.get_running_loop()
    gc.disable()
    began_s, cpu = time.perf_counter(), os.times()
    for at in range(load.connections):
        await loop.create_connection(lambda: Stream(load), spec["host"], spec["port"])
        if at % 50 == 49:
            await asyncio.sleep(spec.get("ramp_s", 0.0))
    async with asyncio.timeout(_TIMEOUT_S):
        if load.hold:
            await load.opened.wait()
        else:
            await load.done.wait()
    now = os.times()
    cpu_s = now.user + now.system - cpu.user - cpu.system
    print(json.dumps(load.figures(time.perf_counter() - began_s, cpu_s)), flush=True)
    if load.hold and not load.error:
        await loop.run_in_executor(None, sys.stdin.readline)
    load.over = True


if __name__ == "__main__":
    uvloop.run(run(json.loads(sys.stdin.readline())))
