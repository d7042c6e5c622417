"""The least a Python server can do for a stream: a bare ASGI application that writes ready-made SSE chunks."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

import uvicorn

#: As long as one chunk of a completion stream.
CHUNK = b'data: {"id":"cmpl-' + b"0" * 24 + b'","object":"text_completion","created":1795971045,"model":"toy",'
CHUNK += b'"choices":[{"index":0,"text":"token","logprobs":null,"finish_reason":null}],"usage":null}\n\n'


async def app(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[dict[str, Any]], Awaitable[None]]
) -> None:
    """GET /?chunks=N&gap_s=S streams N chunks, one every S seconds."""
    if scope["type"] != "http":
        return
    query = parse_qs(scope["query_string"].decode())
    chunks, gap_s = int(query.get("chunks", ["1"])[0]), float(query.get("gap_s", ["0"])[0])
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(chunks):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
        await asyncio.sleep(gap_s)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", loop="uvloop", http="httptools")
