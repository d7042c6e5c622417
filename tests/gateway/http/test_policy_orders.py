"""What operators order about the policy, over HTTP."""

from typing import Any

import httpx
import pytest

from gateway.policy_versions.document import MAX_POLICY_BYTES
from gateway.policy_versions.history import HistoryError
from tests.gateway.http.scripted import Site, says, site

KEYS = {"api_keys": {"acme": "s3cret", "ops": "0perator"}, "operators": ["ops"]}
BLUE = {"version": "blue", "stretch": 2}
CANARY = {"version": "green", "rule": "declared", "stretch": 2}
ROUTES = [
    ("GET", ""),
    ("PUT", ""),
    ("POST", "/check"),
    ("GET", "/history"),
    ("POST", "/rollback"),
    ("GET", "/canary"),
    ("PUT", "/canary"),
    ("POST", "/canary/promote"),
    ("POST", "/canary/abort"),
]


async def send(at: Site, method: str, page: str = "", key: str = "", **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    content = None if method == "GET" else body
    return await at.client.request(method, f"/tandem/v1/policy{page}", json=content, headers=headers)


@pytest.mark.parametrize(("method", "page"), ROUTES)
async def test_only_operators_see_or_change_the_policy(method: str, page: str) -> None:
    async with site(says("a"), settings=KEYS) as at:
        nobody = await send(at, method, page, settings=BLUE)
        tenant = await send(at, method, page, "s3cret", settings=BLUE)
        assert (nobody.status_code, tenant.status_code) == (401, 403)
        assert at.surface.policy != "blue"


async def test_a_policy_is_checked_applied_shown_and_rolled_back() -> None:
    async with site(says("a"), settings=KEYS) as at:
        first = at.surface.policy
        checked = (await send(at, "POST", "/check", "0perator", settings=BLUE)).json()
        assert (checked["policy"], checked["in_force"]) == ("blue", first)
        assert checked["differences"] == [{"path": "stretch", "before": 1.0, "after": 2.0}]
        assert at.surface.policy == first
        applied = (await send(at, "PUT", "", "0perator", settings=BLUE, note="why\nnot")).json()
        assert (applied["before"], applied["policy"]) == (first, "blue")
        shown = (await send(at, "GET", "", "0perator")).json()
        assert (shown["policy"], shown["settings"]["stretch"], shown["by"], shown["note"]) == (
            "blue",
            2.0,
            "ops",
            "why not",
        )
        assert (await at.client.get("/livez")).headers["x-tandem-policy"] == "blue"
        back = (await send(at, "POST", "/rollback", "0perator")).json()
        assert (back["before"], back["policy"]) == ("blue", first)
        history = (await send(at, "GET", "/history", "0perator")).json()
        assert [one["action"] for one in history["changes"]] == ["rolled back", "applied", "configured"]
        assert history["file"] is None


@pytest.mark.parametrize(
    ("method", "page", "body", "status", "code"),
    [
        ("PUT", "", {"settings": {"strech": 2}}, 400, "invalid_policy"),
        ("PUT", "", {"settings": []}, 400, "invalid_request"),
        ("PUT", "", {}, 400, "invalid_request"),
        ("PUT", "", {"settings": {}, "extra": 1}, 400, "invalid_request"),
        ("PUT", "", {"settings": {}, "note": 3}, 400, "invalid_request"),
        ("POST", "/check", {"settings": {"stretch": 0}}, 400, "invalid_policy"),
        ("POST", "/rollback", {"version": "nobody"}, 409, "policy_conflict"),
        ("POST", "/rollback", {}, 409, "policy_conflict"),
        ("PUT", "/canary", {"settings": CANARY}, 400, "invalid_request"),
        ("PUT", "/canary", {"settings": CANARY, "share": 1}, 400, "invalid_request"),
        ("PUT", "/canary", {"settings": CANARY, "share": True}, 400, "invalid_request"),
        ("PUT", "/canary", {"settings": BLUE, "share": 0.1}, 409, "policy_conflict"),
        ("PUT", "/canary", {"settings": CANARY, "share": 0.1, "guard": {"x": 1}}, 400, "invalid_request"),
        ("PUT", "/canary", {"settings": CANARY, "share": 0.1, "guard": {"ttft": 0.5}}, 400, "invalid_request"),
        ("PUT", "/canary", {"settings": CANARY, "share": 0.1, "guard": {"least": "x"}}, 400, "invalid_request"),
        ("POST", "/canary/promote", {}, 409, "policy_conflict"),
        ("POST", "/canary/abort", {}, 409, "policy_conflict"),
    ],
)
async def test_a_wrong_order_says_why_and_changes_nothing(
    method: str, page: str, body: dict[str, Any], status: int, code: str
) -> None:
    async with site(says("a")) as at:
        first = at.surface.policy
        reply = await send(at, method, page, **body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
        assert "\n" not in reply.json()["error"]["message"]
        assert (at.surface.policy, at.surface.versions.trial) == (first, None)


async def test_a_policy_that_is_too_large_is_not_called_a_prompt() -> None:
    async with site(says("a")) as at:
        reply = await at.client.put("/tandem/v1/policy", content=b" " * (MAX_POLICY_BYTES + 1))
    error = reply.json()["error"]
    assert (reply.status_code, error["numbers"]) == (413, {"most_bytes": MAX_POLICY_BYTES})
    assert "prompt" not in error["message"]
    assert "max_body_bytes" not in error["message"]


async def test_a_history_that_cannot_be_written_refuses_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(says("a")) as at:

        def full(change: Any) -> None:
            raise HistoryError("no space left")

        monkeypatch.setattr(at.surface.versions.history, "add", full)
        reply = await send(at, "PUT", settings=BLUE)
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "policy_not_recorded")
        assert at.surface.policy != "blue"


async def test_tenants_without_a_key_are_pointed_out() -> None:
    async with site(says("a"), settings=KEYS) as at:
        settings = {"classes": {"chat": {"tenants": ["acme", "acmee"]}}, "tenants": {"opss": {"weight": 2}}}
        checked = (await send(at, "POST", "/check", "0perator", settings=settings)).json()
        assert checked["warnings"] == ["no API key belongs to tenant opss", "no API key belongs to tenant acmee"]


async def test_a_canary_from_start_to_promotion() -> None:
    async with site(says("a"), settings=KEYS) as at:
        first = at.surface.policy
        begun = (await send(at, "PUT", "/canary", "0perator", settings=CANARY, share=0.25)).json()
        assert (begun["policy"], begun["share"], begun["tried"], begun["not_tried"]) == (
            "green",
            0.25,
            ["rule"],
            ["stretch"],
        )
        status = (await send(at, "GET", "/canary", "0perator")).json()
        assert set(status["outcomes"]) == {first, "green"}
        assert (await send(at, "GET", "", "0perator")).json()["canary"]["share"] == 0.25
        assert (await send(at, "PUT", "", "0perator", settings=BLUE)).status_code == 409
        promoted = (await send(at, "POST", "/canary/promote", "0perator", note="better")).json()
        assert (promoted["before"], promoted["policy"], at.surface.policy) == (first, "green", "green")
