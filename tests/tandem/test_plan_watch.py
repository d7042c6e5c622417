"""A fleet's traffic changes while it runs: the gateway tells of a drift, and a new plan is held against the layout (R-63)."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from loadgen.demand import Demand
from loadgen.workload.spec import Catalogue
from tests.tandem.test_up import WAIT_S, Up, await_ready, await_true, start, tandem

pytestmark = pytest.mark.slow

PROFILE = "h200-sxm/llama-3.1-8b"
RUNNING = f"""
engine: {{backend: simulated, speedup: 10}}
layout:
  colocated:
    workers: 2
    engine: {{profile: "{PROFILE}?tokens=1024&seqs=256", max_num_batched_tokens: 1024}}
"""
#: Whatever comes ends an answer, once it is as long as is wanted: by itself, as far as the gateway can see.
ENDS = list(range(256))


def drawn(workload: str, count: int) -> list[Demand]:
    chains = Catalogue().mix([workload]).draw(count, np.random.default_rng(1))
    return [demand for chain in chains for demand in chain]


async def send(endpoint: str, demands: list[Demand], rate: float) -> None:
    rng = np.random.default_rng(2)

    async def ask(client: httpx.AsyncClient, demand: Demand) -> None:
        prompt = rng.integers(0, 256, demand.prompt_tokens).tolist()
        body = {"model": "llama-3.1-8b", "prompt": prompt, "max_tokens": 2000, "stop_token_ids": ENDS}
        reply = await client.post("/v1/completions", json=body | {"min_tokens": min(2000, demand.output_tokens)})
        assert reply.status_code == 200, reply.text

    async with (
        httpx.AsyncClient(base_url=endpoint, timeout=WAIT_S, trust_env=False) as client,
        asyncio.TaskGroup() as tasks,
    ):
        for demand in demands:
            tasks.create_task(ask(client, demand))
            await asyncio.sleep(1 / rate)


def watch(up: Up, layout: Path, out: Path) -> "subprocess.Popen[str]":
    words = [
        "--running",
        str(layout),
        "--model",
        PROFILE,
        "--gpus",
        "2",
        "--goodput",
        "ttft:1000 tpot:30",
        "-o",
        str(out),
    ]
    words += ["--plans", "1", "--least", "60", "--budget", "20", "--jobs", "1", "-q", "--endpoint", up.endpoint]
    command = [sys.executable, "-m", "tandem", "plan", "watch", *words]
    with (up.directory / "watch").open("w") as file:
        return subprocess.Popen(command, cwd=up.directory, stdout=file, stderr=subprocess.STDOUT, text=True)


def test_a_change_from_conversations_to_code_leads_to_a_new_plan(tmp_path: Path) -> None:
    layout, out = tmp_path / "layout.yaml", tmp_path / "plans"
    layout.write_text(RUNNING)
    up = start(tmp_path, "--config", str(layout))
    try:
        await_ready(up)
        watching = watch(up, layout, out)
        try:
            await_true(lambda: "0 drifts so far" in (tmp_path / "watch").read_text())
            asyncio.run(send(up.endpoint, drawn("azure-conv", 240), rate=20))
            asyncio.run(send(up.endpoint, drawn("azure-code", 240), rate=20))
            assert watching.wait(WAIT_S) == 0, (tmp_path / "watch").read_text()
        finally:
            watching.kill()
        told = tandem("traffic", "--json", "--endpoint", up.endpoint, cwd=tmp_path)
        assert json.loads(told.stdout)["drifts"]["newest"][0]["change"] == "shorter"
    finally:
        up.end()
    said = (tmp_path / "watch").read_text()
    (planned,) = out.iterdir()
    revision = json.loads((planned / "revision.json").read_bytes())
    assert "answers are shorter" in revision["cause"]
    assert revision["verdict"] in said
    assert revision["new"]["rate_ps_per_gpu"] > 0
    assert tandem("config", "check", str(planned / "layout.yaml"), cwd=tmp_path).returncode == 0
