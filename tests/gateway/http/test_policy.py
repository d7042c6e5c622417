"""The policy at the surface: its version everywhere, refusals with its name, what clients declare, explanations."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from gateway.policy.control.decisions import Decision, Look, Seen
from gateway.policy.control.rows import ClassRow, PolicySnapshot
from gateway.policy.estimate import Estimate
from gateway.policy.need import Need
from gateway.policy.routing import DecodeCandidate, Fleet, Rules
from gateway.request.errors import Reason, RequestError
from proto.work import FinishReason
from proto.worker import Role
from tests.gateway.http.scripted import events, piece, says, site

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/tandem/v1/status", "/nowhere"])
async def test_every_response_names_the_policy(path: str) -> None:
    async with site(says("hi")) as one:
        reply = await one.client.get(path)
        assert reply.headers["x-tandem-policy"] == one.surface.policy
        assert len(one.surface.policy) == 10


async def test_an_answer_a_stream_and_an_error_name_it_too() -> None:
    async with site(says("hi"), settings={"policy": {"version": "blue-7"}}) as one:
        bodies: tuple[dict[str, Any], ...] = (CHAT, {**CHAT, "stream": True}, {"messages": []})
        for body in bodies:
            reply = await one.client.post("/v1/chat/completions", json=body)
            assert reply.headers["x-tandem-policy"] == "blue-7"


async def test_a_refusal_carries_reason_numbers_and_policy() -> None:
    async def script(intent: Any) -> Any:
        raise RequestError(
            Reason.RATE_LIMITED, "too fast", retry_after_s=2.4, numbers={"tokens_per_s": 5.0}, policy="blue-7"
        )
        yield ()

    async with site(script) as one:
        reply = await one.client.post("/v1/chat/completions", json=CHAT)
        assert (reply.status_code, reply.headers["retry-after"]) == (429, "3")
        error = reply.json()["error"]
        assert (error["code"], error["policy"], error["numbers"]) == ("rate_limited", "blue-7", {"tokens_per_s": 5.0})
        assert error["retry_after_s"] == 2.4


@pytest.mark.parametrize(
    ("extra", "effort"),
    [
        ({}, ""),
        ({"reasoning_effort": "high"}, "high"),
        ({"reasoning_effort": "a class of my own"}, ""),
        ({"reasoning_effort": 7}, ""),
        ({"enable_thinking": True}, "thinking"),
        ({"thinking": False}, "none"),
    ],
)
async def test_effort_is_read_from_what_the_template_is_told(extra: dict[str, Any], effort: str) -> None:
    async with site(says("hi")) as one:
        reply = await one.client.post("/v1/chat/completions", json={**CHAT, "chat_template_kwargs": extra})
        assert reply.status_code == 200, reply.text
        assert one.intent.effort == effort


async def test_a_client_may_say_how_long_it_waits_for_its_turn() -> None:
    async with site(says("hi")) as one:
        began_s = one.surface.clock()
        await one.client.post("/v1/chat/completions", json=CHAT, headers={"x-tandem-max-wait": "2.5"})
        assert one.intent.deadline_s is not None
        assert began_s + 2.5 <= one.intent.deadline_s <= one.surface.clock() + 2.5
        await one.client.post("/v1/chat/completions", json=CHAT)
        assert one.intent.deadline_s is None


@pytest.mark.parametrize("wrong", ["0", "-1", "soon", "nan", "inf", "1e9"])
async def test_a_wrong_wait_is_an_error(wrong: str) -> None:
    async with site(says("hi")) as one:
        reply = await one.client.post("/v1/chat/completions", json=CHAT, headers={"x-tandem-max-wait": wrong})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "X-Tandem-Max-Wait")


def decision() -> Decision:
    worker = DecodeCandidate("d0", Role.BOTH, 8192, 16, 1000, 500, 64)
    seen = Seen(Need(40, 50, 1), Fleet((worker,), (), {}), Rules(0, False), frozenset(), frozenset())
    look = Look(1.5, "placed", "d0", "role_both", 0, seen)
    need = {"growth_tokens": 50, "likely_tokens": 12}
    return Decision("r1", "acme", "blue-7", "forecast", "default", 40, 1, 50, Estimate.exactly(9), need, 1.0, [look])


async def test_a_decision_can_be_asked_for_by_operators_only() -> None:
    settings = {"api_keys": {"ops": "k1", "acme": "k2"}, "operators": ["ops"]}
    async with site(says("hi"), settings=settings) as one:
        one.surface.decisions = lambda request_id: [decision()] if request_id == "r1" else []

        async def ask(key: str, request_id: str) -> httpx.Response:
            headers = {"authorization": f"Bearer {key}"}
            return await one.client.get(f"/tandem/v1/decisions/{request_id}", headers=headers)

        assert (await ask("k2", "r1")).status_code == 403
        assert (await ask("k1", "r2")).status_code == 404
        (prompt,) = (await ask("k1", "r1")).json()["prompts"]
        assert prompt["looks"][0]["at_s"] == 0.5  # since the prompt was planned
        assert prompt["looks"][0]["candidates"][0]["verdict"] == "fits"
        assert prompt["age_s"] > 0
        assert prompt["estimate"] == {"mean": 9.0, "p50": 9.0, "p90": 9.0, "p99": 9.0}


async def test_the_status_shows_the_policy() -> None:
    row = ClassRow("default", 3, 1, 1, 40, 2, 60, 90.5, 80, 0)
    async with site(says("hi")) as one:
        one.surface.policy_report = lambda: PolicySnapshot("blue-7", "forecast", (row,))
        policy = (await one.client.get("/tandem/v1/status")).json()["policy"]
        assert (policy["version"], policy["rule"]) == ("blue-7", "forecast")
        assert policy["lengths"][0]["under_tokens"] == 40


@pytest.mark.parametrize("stop", [None, "zzz"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_the_policy_ended_says_so(stream: bool, stop: str | None) -> None:
    async def script(intent: Any) -> Any:
        yield (piece(0, tuple(b"some of it"), first=True),)
        yield (replace(piece(0, (), finish=FinishReason.LENGTH), capped=True),)

    async with site(script) as one:
        body = {**CHAT, "stream": stream, **({"stop": stop} if stop else {})}
        reply = await one.client.post("/v1/chat/completions", json=body)
        if stream:
            last = [event for event in events(reply.text) if event][-1]["choices"][0]
        else:
            last = reply.json()["choices"][0]
            assert last["message"]["content"] == "some of it"
        assert (last["finish_reason"], last["stop_reason"]) == ("length", "kv_budget")


async def test_the_policy_in_force_can_be_read_by_operators() -> None:
    keys = {"api_keys": {"ops": "k1", "acme": "k2"}, "operators": ["ops"]}
    async with site(says("hi"), settings={**keys, "policy": {"stretch": 2.0}}) as one:
        url = "/tandem/v1/policy"
        assert (await one.client.get(url, headers={"authorization": "Bearer k2"})).status_code == 403
        document = (await one.client.get(url, headers={"authorization": "Bearer k1"})).json()
        assert document["policy"] == one.surface.policy
        assert (document["settings"]["stretch"], document["settings"]["rule"]) == (2.0, "forecast")
