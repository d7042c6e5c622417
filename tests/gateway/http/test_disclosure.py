"""Where keys are configured, only operators learn the fleet's inner names; every client learns the cause."""

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.cluster.snapshot import ClusterSnapshot
from gateway.http.disclosure import headline
from gateway.request.errors import STATUS, Reason, RequestError
from gateway.request.intent import Intent
from tests.gateway.http.scripted import Batch, FakeCluster, Site, events, says, site
from tests.gateway.observe.test_metrics import snapshot

KEYS: dict[str, Any] = {"api_keys": {"acme": "s3cret", "ops": "0perator"}, "operators": ["ops"]}
TENANT = {"authorization": "Bearer s3cret"}
OPERATOR = {"authorization": "Bearer 0perator"}
INNER = "prefill on prefill-0 failed: UNAVAILABLE: ipv4:10.0.0.7:9200: connection refused; /models/secret"
#: Their messages are about the request or the whole service, never about a part of the fleet.
OURS = {
    Reason.INVALID_REQUEST,
    Reason.UNSUPPORTED,
    Reason.MODEL_NOT_FOUND,
    Reason.INVALID_API_KEY,
    Reason.CONTEXT_LENGTH,
    Reason.KV_CAPACITY,
    Reason.QUEUE_FULL,
    Reason.QUEUE_TIMEOUT,
    Reason.RATE_LIMITED,
    Reason.CONCURRENCY_LIMITED,
    Reason.TTFT_UNREACHABLE,
    Reason.DECODE_OVERLOADED,
    Reason.DRAINING,
    Reason.REQUEST_TIMEOUT,
    Reason.CLIENT_GONE,
}


class Fleet(FakeCluster):
    def snapshot(self) -> ClusterSnapshot:
        made = snapshot()
        missing = "no usable pair: p0 -> d0: 10.0.0.7 refused" if self.missing else ""
        return ClusterSnapshot("g", made.mode, missing, made.workers, made.pairs, {}, 0)


async def fails(intent: Intent) -> AsyncIterator[Batch]:
    raise RequestError(Reason.PREFILL_FAILED, INNER, numbers={"tries": 2})
    yield ()


async def breaks(intent: Intent) -> AsyncIterator[Batch]:
    async for batch in says("one", "two")(intent):
        yield batch
        raise RequestError(Reason.WORKER_LOST, INNER)


def without_names(text: str) -> bool:
    # whole words: random ids in hex contain "d0" now and then
    return not re.search(r"prefill-0|10\.0\.0\.7|UNAVAILABLE|/models|\bd0\b|\bp0\b", text)


async def ask(at: Site, headers: dict[str, str], **body: Any) -> Any:
    return await at.client.post("/v1/completions", json={"prompt": "x", **body}, headers=headers)


async def test_a_failure_names_its_cause_to_tenants_and_its_details_to_operators_and_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site(fails, settings=KEYS) as at:
        tenant, operator = await ask(at, TENANT), await ask(at, OPERATOR)
    error = tenant.json()["error"]
    assert (tenant.status_code, error["code"], error["numbers"]) == (502, "prefill_failed", {"tries": 2})
    assert error["message"].startswith("Computing the prompt failed.")
    assert without_names(tenant.text)
    assert operator.json()["error"]["message"] == INNER
    assert f"request {tenant.headers['x-tandem-request-id']}: prefill_failed: {INNER}" in caplog.text


async def test_without_keys_everybody_sees_everything() -> None:
    async with site(fails) as at:
        assert (await ask(at, {})).json()["error"]["message"] == INNER


@pytest.mark.parametrize("reason", sorted(set(Reason) - OURS))
async def test_no_reason_from_inside_the_fleet_keeps_its_message(reason: Reason) -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        raise RequestError(reason, INNER)
        yield ()

    async with site(script, settings=KEYS) as at:
        reply = await ask(at, TENANT)
    assert (reply.status_code, reply.json()["error"]["code"]) == (STATUS[reason], reason.value)
    assert without_names(reply.text)


async def test_a_stream_that_breaks_names_the_cause_too(caplog: pytest.LogCaptureFixture) -> None:
    async with site(breaks, settings=KEYS, on_socket=True) as at:
        seen = ""
        with contextlib.suppress(httpx.RemoteProtocolError):
            async with at.client.stream(
                "POST", "/v1/completions", json={"prompt": "x", "stream": True}, headers=TENANT
            ) as reply:
                async for text in reply.aiter_text():
                    seen += text
    assert events(seen)[-1]["error"]["code"] == "worker_lost"
    assert without_names(seen)
    told = [record.getMessage() for record in caplog.records if INNER in record.getMessage()]
    assert len(told) == 1, "the log has the cause once"
    assert "internal_error" not in caplog.text, "and nothing else"


async def test_timings_name_workers_to_operators_only() -> None:
    async with site(says("a"), settings=KEYS) as at:
        tenant = await ask(at, TENANT | {"x-tandem-timing": "1"})
        operator = await ask(at, OPERATOR | {"x-tandem-timing": "1"})
    assert tenant.json()["tandem"].keys() == operator.json()["tandem"].keys() - {"prefill_worker", "decode_worker"}
    assert "ttft_s" in tenant.json()["tandem"]


async def test_readiness_names_workers_and_reasons_to_operators_only() -> None:
    async with site(says("a"), settings=KEYS, cluster=Fleet(missing="yes")) as at:
        nobody, tenant, operator = [await at.client.get("/readyz", headers=one) for one in ({}, TENANT, OPERATOR)]
    for reply in (nobody, tenant):
        assert reply.status_code == 503
        assert reply.json() == {"ready": False, "mode": "disaggregated", "missing": "no usable pair"}
    assert operator.json()["missing"].startswith("no usable pair: p0 -> d0")
    assert operator.json()["workers"] == {"d0": "decode, ready"}


async def test_metrics_name_workers_to_operators_only() -> None:
    async with site(says("a"), settings=KEYS) as at:
        given: list[bool] = []

        def metrics(names: bool) -> bytes:
            given.append(names)
            return b""

        at.surface.metrics = metrics
        for headers in ({}, TENANT, OPERATOR):
            assert (await at.client.get("/metrics", headers=headers)).status_code == 200
    assert given == [False, False, True]


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("", ""),
        ("the gateway is draining", "the gateway is draining"),
        ("no ready prefill worker (p0 (prefill) is ejected: 10.0.0.7)", "no ready prefill worker"),
        ("no usable pair: p0 -> d0: refused", "no usable pair"),
        ("No tokenizer: cannot load /models/x/tokenizer.json: gone", "No tokenizer"),
    ],
)
def test_headlines(missing: str, said: str) -> None:
    assert headline(missing) == said
