"""Thousands of requests while workers die, hang and return all the time, through the command itself (B-42).

Real processes, real gRPC, real HTTP; the engines are simulated. A worker dies by SIGKILL and hangs by SIGSTOP, so no
line of ours helps it to do so in good order. Longer, and on the clock instead of a count: the soak.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from gateway.request.errors import Reason
from tests.tandem.test_soak import PROMPTS, Soak
from tests.tandem.test_up import Up, await_ready, await_true, start
from tests.waiting import HANG_S

REQUESTS = 5_000
CLIENTS = 24
WORKERS = ("prefill-0", "prefill-1", "decode-0", "decode-1")
DEADLINES = {"queue_s": 5, "reserve_s": 1, "prefill_s": 2, "first_token_s": 2, "idle_s": 2, "total_s": 20}
#: `total_s`, and a margin for a machine that is busy with workers that come back.
LIMIT_S = 20.0 + HANG_S
#: So many it takes at least.
KILLS, HANGS = 10, 5
#: How long a client that was refused waits, and how often the state of the workers is asked.
PAUSE_S = 0.1
KILL_EVERY_S, HANG_EVERY_S, HUNG_S = (1.0, 2.5), (1.0, 3.0), (0.5, 4.0)
#: What may happen to a request here, `right` apart: the closed list without what only a defect gives.
CODES = {reason.value for reason in Reason} - {Reason.INTERNAL, Reason.CLIENT_GONE}
HELD = ("requests", "queued", "reservations", "prefills", "tickets", "sequences", "cleanups")


class Churn(Soak):
    """The soak's clients until so many requests have ended, and workers that come to grief faster."""

    tokens = 16

    def __init__(self, up: Up, seed: int) -> None:
        super().__init__(up, seed)
        self.trouble = random.Random(seed + 1)

    @property
    def requests(self) -> int:
        return self.outcomes.total() - self.outcomes["kills"] - self.outcomes["hangs"]

    async def until(self, requests: int) -> None:
        limits = httpx.Limits(max_connections=CLIENTS * 2)
        client = httpx.AsyncClient(base_url=self.up.endpoint, timeout=LIMIT_S, trust_env=False, limits=limits)
        async with client as http:
            for prompt in range(PROMPTS):
                self.right[prompt] = await self._whole(http, prompt)
            async with asyncio.TaskGroup() as tasks:
                trouble = [tasks.create_task(make(http)) for make in (self._keep_killing, self._keep_hanging)]
                await asyncio.gather(*[self._several(http, requests) for _ in range(CLIENTS)])
                for task in trouble:
                    task.cancel()

    async def _several(self, http: httpx.AsyncClient, requests: int) -> None:
        while self.requests < requests or self.outcomes["kills"] < KILLS or self.outcomes["hangs"] < HANGS:
            if (await self.one(http)).startswith("503"):
                await asyncio.sleep(PAUSE_S)

    async def _keep_killing(self, http: httpx.AsyncClient) -> None:
        while True:
            await asyncio.sleep(self.trouble.uniform(*KILL_EVERY_S))
            name = await self._victim(http)
            self.outcomes["kills"] += _sent(self.up.pid(name), signal.SIGKILL)

    async def _keep_hanging(self, http: httpx.AsyncClient) -> None:
        while True:
            await asyncio.sleep(self.trouble.uniform(*HANG_EVERY_S))
            pid = self.up.pid(await self._victim(http))
            try:
                self.outcomes["hangs"] += _sent(pid, signal.SIGSTOP)
                await asyncio.sleep(self.trouble.uniform(*HUNG_S))
            finally:
                _sent(pid, signal.SIGCONT)

    async def _victim(self, http: httpx.AsyncClient) -> str:
        """A worker that leaves another of its kind: however slowly they come back, somebody answers most of the time."""
        while True:
            workers = (await http.get("/tandem/v1/status")).json()["workers"]
            ready = {str(worker["worker_id"]) for worker in workers if worker["status"] == "ready"}
            if len(ready) == len(WORKERS):
                return self.trouble.choice(WORKERS)
            if len(ready) == len(WORKERS) - 1:  # its fellow must stay
                missing = next(name for name in WORKERS if name not in ready)
                return self.trouble.choice(
                    [name for name in sorted(ready) if name.split("-")[0] != missing.split("-")[0]]
                )
            await asyncio.sleep(PAUSE_S)


def _sent(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_b42_five_thousand_requests_end_in_time_while_workers_die_and_hang(tmp_path: Path) -> None:
    lively = ["--set", "supervisor.restarts_max=1000000", "--set", "supervisor.restart_backoff_max_s=0.2"]
    lively += [part for name, value in DEADLINES.items() for part in ("--set", f"gateway.deadlines.{name}={value}")]
    lively += ["--set", "gateway.health.probe_backoff_s=0.2", "--set", "gateway.health.stale_after_s=3"]
    up = start(tmp_path, "--prefill", "2", "--decode", "2", *lively)
    try:
        await_ready(up)
        run, began_s = Churn(up, seed=42), time.monotonic()
        asyncio.run(run.until(REQUESTS))
        took_s = time.monotonic() - began_s
        print(f"\n{took_s:.0f} s, slowest {run.slowest_s:.1f} s: {dict(run.outcomes.most_common())}")
        await_true(lambda: all(worker["status"] == "ready" for worker in up.status()["workers"]))
        await_true(lambda: not any(up.status()["integrity"][name] for name in HELD))
        after = up.status()
    finally:
        up.end()
    assert after["integrity"]["overdue"] == []
    assert all(worker["reservations"] == 0 for worker in after["workers"])
    assert run.requests >= REQUESTS
    assert run.wrong == []
    assert run.slowest_s < LIMIT_S
    assert strange(run.outcomes) == {}
    assert run.outcomes["right"] > REQUESTS / 10, run.outcomes


def strange(outcomes: Counter[str]) -> dict[str, int]:
    """Ends that are not on the list: each ends with its code, whether a status or an event of the stream tells it."""
    usual = {"right", "left", "kills", "hangs"}
    return {name: count for name, count in outcomes.items() if name not in usual and name.split()[-1] not in CODES}
