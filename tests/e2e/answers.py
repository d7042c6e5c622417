"""Ways to ask a stack for answers, and what to expect of them."""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

Tokens = list[int]

#: The tiny model's vocabulary without the special tokens at its start.
VOCABULARY = range(100, 49_000)


def prompt(length: int, seed: int) -> Tokens:
    """`length` token ids, the same for the same seed."""
    rng = random.Random(seed)
    return [rng.choice(VOCABULARY) for _ in range(length)]


def completion(tokens: Tokens, max_tokens: int, **extra: Any) -> dict[str, Any]:
    return {"prompt": tokens, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, **extra}


async def complete(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    reply = await client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def texts(url: str, bodies: Sequence[dict[str, Any]], at_once: int = 8) -> list[str]:
    """The texts of `bodies`, in order."""
    gate = asyncio.Semaphore(at_once)
    async with httpx.AsyncClient(base_url=url, timeout=300) as client:

        async def one(body: dict[str, Any]) -> str:
            async with gate:
                text: str = (await complete(client, body))["choices"][0]["text"]
                return text

        return await asyncio.gather(*(one(body) for body in bodies))


@dataclass(slots=True)
class Streamed:
    """What a streaming client saw."""

    status: int = 0
    text: str = ""
    chunks: int = 0
    finish: str | None = None
    done: bool = False
    error: dict[str, Any] | None = None
    broken: bool = False
    headers: dict[str, str] = field(default_factory=dict)


async def stream(client: httpx.AsyncClient, body: dict[str, Any], seen: Streamed | None = None) -> Streamed:
    """Reads a completion stream to whatever end it has; `seen` can be watched meanwhile."""
    seen = seen or Streamed()
    try:
        async with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as reply:
            seen.status, seen.headers = reply.status_code, dict(reply.headers)
            if reply.status_code != 200:
                seen.error = json.loads(await reply.aread())["error"]
                return seen
            async for line in reply.aiter_lines():
                _take(line, seen)
    except httpx.RemoteProtocolError:
        seen.broken = True
    return seen


def _take(line: str, seen: Streamed) -> None:
    if not line.startswith("data: "):
        return
    if line == "data: [DONE]":
        seen.done = True
        return
    chunk = json.loads(line.removeprefix("data: "))
    if "error" in chunk:
        seen.error = chunk["error"]
        return
    for choice in chunk["choices"]:
        seen.text += choice["text"]
        seen.chunks += bool(choice["text"])
        seen.finish = choice["finish_reason"] or seen.finish
