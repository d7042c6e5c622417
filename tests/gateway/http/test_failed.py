"""Whoever operates the gateway can ask how a request ended, also one that no policy ever saw."""

from collections.abc import AsyncIterator
from typing import Any

import httpx

from gateway.request.errors import Reason, RequestError
from gateway.request.intent import Intent
from tests.gateway.http.scripted import Batch, Site, says, site

KEYS = {"api_keys": {"ops": "k1", "acme": "k2"}, "operators": ["ops"]}


async def told(at: Site, reply: httpx.Response, **options: Any) -> Any:
    found = await at.client.get(f"/tandem/v1/decisions/{reply.headers['x-tandem-request-id']}", **options)
    return found.json()


async def test_a_request_that_was_refused_for_its_input_can_be_explained() -> None:
    async with site(says("a")) as at:
        bad = await at.chat(n=50)
        document = await told(at, bad)
        good = await told(at, await at.chat())
    assert document["prompts"] == []
    error = document["error"]
    assert (error["status"], error["code"], error["param"]) == (400, "invalid_request", "n")
    assert error["message"] == bad.json()["error"]["message"]
    assert error["numbers"] == {"choices": 50, "max_choices": 16}
    assert error["phase"] == "received"
    assert error["age_s"] >= 0
    assert good["error"]["code"] == "request_not_found"  # it is fine, and this lifecycle keeps no decisions


async def test_a_limit_met_before_the_body_was_read_can_be_explained_too() -> None:
    async with site(says("a"), settings={"max_body_bytes": 1000}) as at:
        replies = [await at.complete("x" * 2000), await at.client.post("/tokenize", json={"prompt": "x" * 2000})]
        errors = [(await told(at, reply))["error"] for reply in replies]
    assert [error["status"] for error in errors] == [413, 413]
    assert errors[0]["numbers"] == {"max_body_bytes": 1000}


async def test_operators_read_in_full_what_a_client_was_told_in_short() -> None:
    async def breaks(intent: Intent) -> AsyncIterator[Batch]:
        raise RequestError(Reason.WORKER_LOST, "decode-0 at 10.0.0.7 was lost")
        yield ()

    async with site(breaks, settings=KEYS) as at:
        reply = await at.client.post("/v1/completions", json={"prompt": "x"}, headers={"authorization": "Bearer k2"})
        error = (await told(at, reply, headers={"authorization": "Bearer k1"}))["error"]
        refused = await told(at, reply, headers={"authorization": "Bearer k2"})
    assert "10.0.0.7" not in reply.text
    assert (error["message"], error["phase"]) == ("decode-0 at 10.0.0.7 was lost", "decoding")
    assert refused["error"]["code"] == "not_an_operator"


async def test_only_so_many_are_kept_as_decisions_are() -> None:
    async with site(says("a"), settings={"policy": {"decisions": 2}}) as at:
        replies = [await at.chat(n=50) for _ in range(3)]
        codes = [(await told(at, reply))["error"]["code"] for reply in replies]
        assert len(at.surface.failed) == 2
    assert codes == ["request_not_found", "invalid_request", "invalid_request"]
    async with site(says("a"), settings={"policy": {"decisions": 0}}) as at:
        await at.chat(n=50)
        assert len(at.surface.failed) == 0


async def test_strangers_push_nothing_out() -> None:
    async with site(says("a"), settings=KEYS) as at:
        reply = await at.client.post("/v1/completions", json={"prompt": "x"}, headers={"authorization": "Bearer no"})
        assert reply.status_code == 401
        assert len(at.surface.failed) == 0
