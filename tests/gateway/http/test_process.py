"""The gateway as a process: what it announces, and how it drains."""

import asyncio
import json
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

import httpx
import pytest

from gateway.app import create_app, run_gateway
from gateway.config import GatewayConfig
from gateway.http.exposure import open_doors
from proto.worker import Role
from tests.openai_client.stack import simulated_stack
from tests.waiting import HANG_S, until
from transfer.ports import free_ports

BODY = {"prompt": "a long story about the sea", "max_tokens": 60, "ignore_eos": True, "stream": True}


@pytest.mark.slow
async def test_b50_a_drain_lets_streams_end_and_refuses_new_ones() -> None:
    with simulated_stack(Role.BOTH, drain_s=HANG_S) as stack:
        async with httpx.AsyncClient(base_url=stack.url, timeout=HANG_S, trust_env=False) as client:
            async with client.stream("POST", "/v1/completions", json={**BODY, "max_tokens": 1500}) as reply:
                lines = reply.aiter_lines()
                await anext(lines)
                stack.stop()
                while (ready := await client.get("/readyz")).status_code == 200:
                    pass
                live = await client.get("/livez")
                refused = await client.post("/v1/completions", json=BODY)
                rest = [line async for line in lines]
            assert (live.status_code, ready.status_code, refused.status_code) == (200, 503, 503)
            assert ready.json()["missing"] == "the gateway is draining"
            assert refused.json()["error"]["code"] == "draining"
            assert "retry-after" in refused.headers
            assert [line for line in rest if line][-1] == "data: [DONE]"
    async with httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx.TransportError):
            await client.get(f"{stack.url}/livez")


@pytest.mark.slow
async def test_streams_that_are_longer_than_a_drain_end_with_an_error_that_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with simulated_stack(Role.BOTH, drain_s=0.1) as stack:
        async with (
            httpx.AsyncClient(base_url=stack.url, timeout=HANG_S, trust_env=False) as client,
            client.stream("POST", "/v1/completions", json={**BODY, "max_tokens": 1500}) as reply,
        ):
            lines = reply.aiter_lines()
            said = [await anext(lines)]
            stack.stop()
            with suppress(httpx.TransportError):  # a stream that broke has no regular end (B-25)
                async for line in lines:
                    said += [line]
    last = json.loads([line for line in said if line][-1].removeprefix("data: "))
    assert last["error"]["code"] == "draining"
    assert not [entry for entry in caplog.records if entry.exc_info]


async def test_the_process_says_where_it_listens_in_one_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    stop = asyncio.Event()
    gateway = asyncio.create_task(run_gateway(GatewayConfig(port=0, drain_s=1), stop))
    line = ""
    while not line:
        await asyncio.sleep(0.02)
        line = capsys.readouterr().out
    said = json.loads(line)
    async with httpx.AsyncClient(base_url=said["http"], timeout=HANG_S, trust_env=False) as client:
        assert (await client.get("/livez")).status_code == 200
        ready = await client.get("/readyz")
    stop.set()
    await gateway
    assert said["event"] == "ready"
    assert said["grpc"].startswith("127.0.0.1:")
    assert ready.status_code == 503
    assert "decode" in ready.json()["missing"]


NO_KEY, NO_TLS = "asks for no key", "without TLS"
TLS = {"cert_file": "c", "key_file": "k", "ca_file": "a"}


@pytest.mark.parametrize(
    ("settings", "doors"),
    [
        ({}, []),
        ({"host": "::1", "grpc_host": "localhost"}, []),
        ({"host": "0.0.0.0"}, [NO_KEY]),
        ({"host": ""}, [NO_KEY]),
        ({"host": "10.0.0.7", "api_keys": {"acme": "k"}}, []),
        ({"grpc_host": "::"}, [NO_TLS]),
        ({"grpc_host": "0.0.0.0", "tls": TLS}, []),
        ({"host": "0.0.0.0", "grpc_host": "0.0.0.0"}, [NO_KEY, NO_TLS]),
    ],
)
def test_what_is_open_to_the_network_is_said(settings: dict[str, Any], doors: list[str]) -> None:
    said = open_doors(GatewayConfig.model_validate(settings))
    assert len(said) == len(doors)
    assert all(door in line for door, line in zip(doors, said, strict=True))


async def test_an_open_gateway_warns_when_it_starts(caplog: pytest.LogCaptureFixture) -> None:
    stop = asyncio.Event()
    stop.set()
    await run_gateway(GatewayConfig(host="0.0.0.0", port=0, drain_s=0), stop)
    warnings = [entry.message for entry in caplog.records if entry.levelname == "WARNING"]
    assert any("OPEN TO THE NETWORK: HTTP on 0.0.0.0 asks for no key" in line for line in warnings)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_port_in_use_is_an_error_at_once() -> None:
    (port,) = free_ports("127.0.0.1", 1)
    stop = asyncio.Event()
    first = asyncio.create_task(run_gateway(GatewayConfig(port=port, drain_s=0), stop))
    await until(lambda: listens(port))
    with pytest.raises(OSError, match="in use"):
        await run_gateway(GatewayConfig(port=port), asyncio.Event())
    stop.set()
    await first


@pytest.mark.slow
def test_importing_the_application_loads_no_engine() -> None:
    code = "import sys, gateway.app; print(sorted({'torch', 'vllm', 'transformers', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['numpy']")


async def test_the_app_runs_under_any_server_with_a_lifespan() -> None:
    app = create_app(GatewayConfig())
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            assert (await client.get("/livez")).json() == {"live": True}
            metrics = (await client.get("/metrics")).text
    assert 'tandem_ready{mode="none"} 0.0' in metrics
