"""The life of a policy in real processes with simulated engines: applied under load, rolled back, kept over a restart."""

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.fleet import until
from tests.tandem.supervisor.cluster import alive_in_groups
from tests.tandem.test_up import WAIT_S, Up, await_ready, await_true, start, tandem

pytestmark = pytest.mark.slow

POLICIES = {
    "one": "version: one\nstretch: 3\noutput_weight: 4\n",
    "two": "version: two\nrule: declared\nclasses: {default: {weight: 2, band: high}}\n",
}


class Load:
    """Clients that ask one after another until told to stop; every answer is read to its end."""

    def __init__(self, endpoint: str, clients: int = 6) -> None:
        self.answers: list[tuple[int, str, int]] = []  # status, version, tokens
        self._endpoint = endpoint
        self._clients = clients
        self._stop = asyncio.Event()

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(self._clients)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    @property
    def versions(self) -> Counter[str]:
        return Counter(version for _, version, _ in self.answers)

    async def until_seen(self, version: str, more: int = 12) -> None:
        goal = self.versions[version] + more
        await until(lambda: self.versions[version] >= goal, WAIT_S)

    async def _client(self, number: int) -> None:
        async with httpx.AsyncClient(base_url=self._endpoint, timeout=WAIT_S, trust_env=False) as client:
            turn = 0
            while not self._stop.is_set():
                prompt = f"client {number} asks for the time of day, for the {turn}th time, in some words"
                body: dict[str, Any] = {"model": "toy", "prompt": prompt, "max_tokens": 30, "ignore_eos": True}
                reply = await client.post("/v1/completions", json=body)
                tokens = reply.json()["usage"]["completion_tokens"] if reply.is_success else 0
                self.answers.append((reply.status_code, reply.headers["x-tandem-policy"], tokens))
                turn += 1


async def order(up: Up, *arguments: str) -> str:
    result = await asyncio.to_thread(tandem, "policy", *arguments, "--endpoint", up.endpoint, cwd=up.directory)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_policy_changes_under_load_and_outlives_the_gateway(tmp_path: Path) -> None:
    for name, text in POLICIES.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    up = start(tmp_path, "--prefill", "1", "--decode", "1", "--set", "gateway.policy.version=base")
    try:
        await_ready(up)
        asyncio.run(_changes(up))
        os.kill(up.pid("gateway"), signal.SIGKILL)
        await_true(lambda: "killed by SIGKILL" in up.text)
        await_true(lambda: _version(up) == "one")
        history = json.loads(asyncio.run(order(up, "history", "--json")))
        assert [change["version"] for change in history["changes"]] == ["one", "two", "one", "base"]
        assert Path(history["file"]).parent.name.startswith("port-")
    finally:
        if up.process.poll() is None:
            up.end()
        await_true(lambda: not alive_in_groups(up.groups()))


async def _changes(up: Up) -> None:
    async with Load(up.endpoint) as load:
        await load.until_seen("base")
        assert "policy one in place of base" in await order(up, "apply", "one.yaml", "--note", "under load")
        await load.until_seen("one")
        await order(up, "apply", "two.yaml")
        await load.until_seen("two")
        assert "policy one in place of two" in await order(up, "rollback")
        await load.until_seen("one")
    assert {(status, tokens) for status, _, tokens in load.answers} == {(200, 30)}
    assert set(load.versions) == {"base", "one", "two"}


def _version(up: Up) -> str:
    try:
        return str(httpx.get(f"{up.endpoint}/readyz", timeout=WAIT_S, trust_env=False).headers["x-tandem-policy"])
    except httpx.TransportError:
        return ""
