"""Everything at once, for as long as you like: clients that stay and clients that leave, workers that are killed.

At the end nothing may be held, nothing may have hung, and no text may have been wrong (B-37, B-42).
"""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest

from tests.tandem.test_up import Up, await_ready, await_true, start
from tests.waiting import HANG_S

CLIENTS = 16
PROMPTS = 12
TOKENS = 40
#: No request may take longer, whatever dies: restarts, retries and deadlines included.
LIMIT_S = 3 * HANG_S
KILL_EVERY_S = (2.0, 6.0)
#: Connections of idle clients and of the status calls; far below one a request.
SPARE_FILES = 40
SPARE_BYTES = 64 * 1024 * 1024
_HELD = ("requests", "queued", "reservations", "prefills", "tickets", "sequences", "cleanups")


class Soak:
    tokens = TOKENS

    def __init__(self, up: Up, seed: int) -> None:
        self.up = up
        self.random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.slowest_s = 0.0
        self.right: dict[int, str] = {}

    async def run(self, seconds: float) -> None:
        limits = httpx.Limits(max_connections=CLIENTS * 2)
        async with httpx.AsyncClient(
            base_url=self.up.endpoint, timeout=LIMIT_S, trust_env=False, limits=limits
        ) as http:
            for prompt in range(PROMPTS):
                self.right[prompt] = await self._whole(http, prompt)
            until_s = time.monotonic() + seconds
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._kill(until_s))
                for _ in range(CLIENTS):
                    tasks.create_task(self._client(http, until_s))

    def _body(self, prompt: int, stream: bool) -> dict[str, object]:
        # some prompts are short enough to stay local, most are handed off
        tokens = [97 + prompt] * (8 if prompt < PROMPTS // 4 else 20 + 37 * prompt)
        return {"model": "toy", "prompt": tokens, "max_tokens": self.tokens, "ignore_eos": True, "stream": stream}

    async def _whole(self, http: httpx.AsyncClient, prompt: int) -> str:
        reply = await http.post("/v1/completions", json=self._body(prompt, stream=False))
        if reply.status_code != httpx.codes.OK:
            error = reply.json()["error"]
            raise RefusedError(f"{reply.status_code} {error['code']}")
        text: str = reply.json()["choices"][0]["text"]
        assert reply.json()["usage"]["completion_tokens"] == self.tokens
        return text

    async def _client(self, http: httpx.AsyncClient, until_s: float) -> None:
        while time.monotonic() < until_s:
            await self.one(http)

    async def one(self, http: httpx.AsyncClient) -> str:
        """One request, counted by how it ended."""
        prompt, began_s = self.random.randrange(PROMPTS), time.monotonic()
        leave_after = self.random.choice([None, None, 0, 1, self.random.randrange(self.tokens)])
        try:
            if self.random.random() < 0.3:
                outcome = self._judge(prompt, await self._whole(http, prompt))
            else:
                outcome = await self._stream(http, prompt, leave_after)
        except RefusedError as error:
            outcome = str(error)
        except httpx.RemoteProtocolError:
            outcome = "broken without a word"
        self.outcomes[outcome] += 1
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        return outcome

    async def _stream(self, http: httpx.AsyncClient, prompt: int, leave_after: int | None) -> str:
        text, events, failed = "", 0, ""
        async with http.stream("POST", "/v1/completions", json=self._body(prompt, stream=True)) as reply:
            if reply.status_code != httpx.codes.OK:
                raise RefusedError(f"{reply.status_code} {json.loads(await reply.aread())['error']['code']}")
            if leave_after == 0:
                return "left"
            try:
                async for line in reply.aiter_lines():
                    if line == "data: [DONE]":
                        return self._judge(prompt, text)
                    if not line.startswith("data: "):
                        continue
                    event = json.loads(line.removeprefix("data: "))
                    if "error" in event:
                        failed = f"error event {event['error']['code']}"
                        continue
                    text += event["choices"][0]["text"]
                    events += 1
                    if events == leave_after:
                        return "left"
            except httpx.RemoteProtocolError:
                if not failed:
                    raise
        if not self.right[prompt].startswith(text):
            self.wrong.append(f"prompt {prompt}: {text!r} before an error")
        return failed or "ended without [DONE]"

    def _judge(self, prompt: int, text: str) -> str:
        if text != self.right[prompt]:
            self.wrong.append(f"prompt {prompt}: {text!r}")
            return "wrong"
        return "right"

    async def _kill(self, until_s: float) -> None:
        names = ("prefill-0", "prefill-1", "decode-0", "decode-1")
        while True:
            await asyncio.sleep(self.random.uniform(*KILL_EVERY_S))
            if time.monotonic() > until_s - KILL_EVERY_S[1]:
                return
            try:
                os.kill(self.up.pid(self.random.choice(names)), signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.outcomes["kills"] += 1


class RefusedError(Exception):
    pass


def soak(directory: Path, seconds: float, seed: int) -> Counter[str]:
    lively = ("--set", "supervisor.restarts_max=1000000", "--set", "supervisor.restart_backoff_max_s=0.5")
    up = start(directory, "--prefill", "2", "--decode", "2", *lively)
    try:
        await_ready(up)
        run = Soak(up, seed)
        gateway = psutil.Process(up.pid("gateway"))
        asyncio.run(run.run(min(seconds, 3.0)))  # warm: caches and pools are filled
        files, resident = gateway.num_fds(), gateway.memory_info().rss
        run.outcomes.clear()
        asyncio.run(run.run(seconds))
        await_true(lambda: all(worker["status"] == "ready" for worker in up.status()["workers"]))
        await_true(lambda: not any(up.status()["integrity"][name] for name in _HELD))
        held = up.status()
        assert held["integrity"]["overdue"] == []
        assert all(worker["reservations"] == 0 for worker in held["workers"])
        assert run.wrong == []
        assert run.slowest_s < LIMIT_S
        assert up.pid("gateway") == gateway.pid, "the gateway died"
        assert gateway.num_fds() < files + SPARE_FILES
        assert gateway.memory_info().rss < resident + SPARE_BYTES
        assert run.outcomes["ended without [DONE]"] == 0
        assert run.outcomes["broken without a word"] == 0
        assert run.outcomes["right"] > run.outcomes.total() / 10
        return run.outcomes
    finally:
        up.end()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_b37_a_short_soak_leaves_nothing_behind(tmp_path: Path) -> None:
    outcomes = soak(tmp_path, 25.0, seed=1)
    assert outcomes["left"] > 20
    assert outcomes["kills"] >= 2


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_b37_a_long_soak_leaves_nothing_behind(tmp_path: Path) -> None:
    minutes = float(os.environ.get("TANDEM_SOAK_MINUTES", "60"))
    outcomes = soak(tmp_path, minutes * 60, seed=time.time_ns())
    print(f"\n{minutes:.0f} minutes: {dict(outcomes.most_common())}")
