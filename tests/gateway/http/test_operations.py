"""Liveness, readiness, status, drains, keys and ids."""

from pathlib import Path

import pytest

from gateway.cluster.client import WorkerLostError
from gateway.observe.request_log import line
from gateway.request.trace import Trace
from proto.fault import Fault, FaultError, FaultKind
from tandem.client import snapshot_of
from tests.gateway.http.scripted import FakeCluster, says, site
from tests.waiting import until

KEYS = {"api_keys": {"acme": "s3cret", "ops": "0perator"}, "operators": ["ops"]}


async def test_readiness_says_the_mode_or_what_is_missing() -> None:
    async with site(says("a")) as at:
        ready = await at.client.get("/readyz")
        at.surface.draining = True
        draining = await at.client.get("/readyz")
        live = await at.client.get("/livez")
    async with site(says("a"), cluster=FakeCluster(missing="no ready decode worker")) as at:
        missing = await at.client.get("/readyz")
    assert (ready.status_code, ready.json()["mode"]) == (200, "colocated")
    assert (draining.status_code, live.status_code) == (503, 200)
    assert draining.json()["missing"] == "the gateway is draining"
    assert (missing.status_code, missing.json()["missing"]) == (503, "no ready decode worker")


async def test_health_is_liveness_with_vllms_empty_body() -> None:
    async with site(says("a"), cluster=FakeCluster(missing="no ready decode worker")) as at:
        at.surface.draining = True
        health = await at.client.get("/health")
    assert (health.status_code, health.content) == (200, b"")


@pytest.mark.parametrize("path", ["/livez", "/health", "/readyz", "/metrics", "/v1/models", "/tandem/v1/status"])
async def test_head_is_answered_as_get_without_the_body(path: str) -> None:
    async with site(says("a"), on_socket=True) as at:
        get, head = await at.client.get(path), await at.client.head(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers.get("content-type") == get.headers.get("content-type")


async def test_a_wrong_method_hears_of_the_right_ones() -> None:
    async with site(says("a"), on_socket=True) as at:
        post, head = await at.client.post("/livez"), await at.client.head("/v1/completions")
    assert (post.status_code, post.headers["allow"]) == (405, "GET, HEAD")
    assert (head.status_code, head.headers["allow"]) == (405, "POST")


async def test_readiness_says_why_the_tokenizer_is_missing_before_anybody_asks_for_an_answer(tmp_path: Path) -> None:
    model = tmp_path / "model"
    async with site(says("a"), settings={"tokenizer": str(model)}) as at:
        absent, status = await at.client.get("/readyz"), await at.client.get("/tandem/v1/status")
        model.mkdir()
        (model / "tokenizer.json").write_text("{oops")
        broken = await at.client.get("/readyz")
    for reply in (absent, broken):
        assert reply.status_code == 503
        assert reply.json()["missing"].startswith(f"No tokenizer: cannot load {model}/tokenizer.json")
    assert status.json()["missing"] == absent.json()["missing"]


async def test_the_tokenizer_is_loaded_when_a_worker_comes_and_not_at_the_first_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"tokenizer": str(tmp_path / "absent")}
    async with site(says("a"), cluster=FakeCluster(info=None), settings=settings) as at:
        assert not caplog.records
        at.cluster.joined()
        await until(lambda: caplog.records)
    assert caplog.records[0].message.startswith("No tokenizer: cannot load")


async def test_status_holds_the_snapshot_the_account_and_the_version() -> None:
    async with site(says("a")) as at:
        status = (await at.client.get("/tandem/v1/status")).json()
    assert status["mode"] == "colocated"
    assert status["integrity"]["reservations"] == 0
    assert status["limits"] == {"max_queued": 1024, "queue_s": 60.0, "preemption": "recompute"}
    assert status["version"]


async def test_draining_a_worker_and_giving_it_work_again() -> None:
    async with site(says("a")) as at:
        path = "/tandem/v1/workers/w"
        drained = await at.client.post(f"{path}/drain")
        await at.client.post(f"{path}/drain", json={"resume": True})
        await at.client.post(f"{path}/resume")
        unknown = await at.client.post("/tandem/v1/workers/nobody/drain")
        wrong = await at.client.post(f"{path}/drain", content=b"{oops")
        assert at.cluster.drains == [("w", False), ("w", True), ("w", True)]
    assert drained.json() == {"worker_id": "w", "draining": True, "outstanding": 3}
    assert (unknown.status_code, wrong.status_code) == (404, 400)


@pytest.mark.parametrize("path", ["w/drain%0a", "w/resume%0A", "w/role%0a", "w%0a/drain", "w/drain%00", "w/drain%7f"])
async def test_a_path_with_a_control_character_is_no_path(path: str) -> None:
    """`$` in a route's pattern stands before a last line feed, too: `POST …/drain%0a` drained."""
    async with site(says("a")) as at:
        reply = await at.client.post(f"/tandem/v1/workers/{path}", json={})
        assert at.cluster.drains == []
    assert reply.status_code == 404
    assert reply.json()["error"]["message"] == f"No such path: POST /tandem/v1/workers/{path}."


@pytest.mark.parametrize("path", ["/livez%0a", "/metrics%0a", "/v1/completions%0a", "/tandem/v1/status%0a"])
async def test_no_other_path_has_one_either_and_keys_are_asked_for_first(path: str) -> None:
    async with site(says("a"), settings=KEYS) as at:
        nobody = await at.client.get(path)
        somebody = await at.client.get(path, headers={"authorization": "Bearer s3cret"})
    assert (nobody.status_code, somebody.status_code) == (401, 404)


async def test_whoever_misspells_a_worker_is_told_which_there_are() -> None:
    workers = [
        {"worker_id": f"w{number:02}", "role": "both", "status": status, "tp": 1}
        for number, status in enumerate(["gone", "connecting", *["ready"] * 17, "ejected"])
    ]
    listed = snapshot_of({"gateway_id": "g", "mode": "colocated", "workers": workers}).workers
    said = []
    for some in (listed, listed[:3], listed[:2]):
        async with site(says("a"), cluster=FakeCluster(listed=some)) as at:
            reply = await at.client.post("/tandem/v1/workers/nobody/drain")
            said.append(reply.json()["error"]["message"])
    names = ", ".join(f"w{number:02}" for number in range(2, 18))
    assert said == [
        f"No worker `nobody` is connected; those that are: {names} and 2 more.",
        "No worker `nobody` is connected; those that are: w02.",
        "No worker `nobody` is connected; nor is any other.",
    ]


async def test_a_role_is_changed_by_order() -> None:
    async with site(says("a")) as at:
        path = "/tandem/v1/workers/w/role"
        changed = await at.client.post(path, json={"role": "prefill"})
        again = await at.client.post(path, json={"role": "prefill"})
        unknown = await at.client.post("/tandem/v1/workers/nobody/role", json={"role": "both"})
        for wrong in (b"", b"{oops", b"[]", b'{"role": "chef"}', b'{"role": ["both"]}', b'{"role": "both", "n": 1}'):
            reply = await at.client.post(path, content=wrong)
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "role")
    assert changed.json() == {"worker_id": "w", "role": "prefill", "before": "both"}
    assert again.json()["before"] == "prefill"
    assert unknown.status_code == 404


@pytest.mark.parametrize("order", ["drain", "resume", "role"])
async def test_orders_that_a_worker_cannot_carry_out_say_why(order: str) -> None:
    """A worker that dies or hangs under an order is no defect of the gateway."""
    troubles: list[tuple[Exception, int, str]] = [
        (WorkerLostError("gone"), 502, "worker_lost"),
        (TimeoutError(), 504, "request_timeout"),
        (FaultError(Fault(FaultKind.INTERNAL, "no")), 502, "worker_refused"),
    ]
    async with site(says("a")) as at:
        for at.cluster.trouble, status, code in troubles:
            body = {"role": "both"} if order == "role" else None
            reply = await at.client.post(f"/tandem/v1/workers/w/{order}", json=body)
            assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


async def test_wrong_keys_get_401_and_right_ones_their_tenant() -> None:
    async with site(says("a"), settings=KEYS) as at:
        for given in (None, "Bearer wrong", "Bearer ", "Basic s3cret", "s3cret", "Bearer s3cret2", "Bearer \xff"):
            headers = {} if given is None else {b"authorization": given.encode("latin-1")}
            for path in ("/v1/models", "/tandem/v1/status", "/nowhere"):
                reply = await at.client.get(path, headers=headers)
                assert reply.status_code == 401
                assert reply.json()["error"]["code"] == "invalid_api_key"
        at.client.headers["authorization"] = "bearer s3cret"
        assert (await at.chat()).status_code == 200
        assert at.intent.tenant == "acme"
        assert "s3cret" not in repr(at.observer.records)


async def test_probes_and_metrics_need_no_key() -> None:
    async with site(says("a"), settings=KEYS) as at:
        for path in ("/livez", "/health", "/readyz", "/metrics"):
            assert (await at.client.get(path)).status_code == 200


async def test_only_operators_see_and_change_the_cluster() -> None:
    async with site(says("a"), settings=KEYS) as at:
        replies = {}
        for key in ("s3cret", "0perator"):
            headers = {"authorization": f"Bearer {key}"}
            status = await at.client.get("/tandem/v1/status", headers=headers)
            drain = await at.client.post("/tandem/v1/workers/w/drain", headers=headers)
            role = await at.client.post("/tandem/v1/workers/w/role", json={"role": "both"}, headers=headers)
            replies[key] = (status.status_code, drain.status_code, role.status_code)
        assert at.cluster.drains == [("w", False)] * 2
    assert replies == {"s3cret": (403, 403, 403), "0perator": (200, 200, 200)}


@pytest.mark.parametrize("order", ["drain", "resume", "role"])
async def test_who_may_not_give_an_order_is_told_so_whatever_the_order_says(order: str) -> None:
    async with site(says("a"), settings=KEYS) as at:
        headers = {"authorization": "Bearer s3cret"}
        reply = await at.client.post(f"/tandem/v1/workers/w/{order}", content=b"[", headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "not_an_operator")


async def test_client_ids_are_echoed_clean_and_never_used_as_keys() -> None:
    async with site(says("a")) as at:
        body = {"prompt": "x"}
        twice = [
            await at.client.post("/v1/completions", json=body, headers={"X-Request-Id": "same id\t<1>"})
            for _ in range(2)
        ]
        doubled = await at.client.post(
            "/v1/completions", json=body, headers=[("x-request-id", "first"), ("x-request-id", "second")]
        )
        long = await at.client.post("/v1/completions", json=body, headers={"X-Request-Id": "x" * 5000})
        none = await at.client.post("/v1/completions", json=body)
        internal = [intent.request_id for intent in at.lifecycle.intents]
    assert [reply.headers["x-request-id"] for reply in twice] == ["sameid1", "sameid1"]
    assert doubled.headers["x-request-id"] == "first"
    assert len(long.headers["x-request-id"]) == 128
    assert len(set(internal)) == 5
    assert none.headers["x-request-id"] == none.headers["x-tandem-request-id"] == internal[-1]
    assert not {"sameid1", "first"} & set(internal)


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"00-{TRACE}-00f067aa0ba902b7-00", TRACE),
        (f"01-{TRACE}-00f067aa0ba902b7-01-more", TRACE),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", ""),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE}-00f067aa0ba902b7-01x", ""),
        ("x" * 5000, ""),
    ],
    ids=lambda value: value[:24],
)
async def test_the_ids_of_the_client_and_of_its_trace_are_in_the_account(sent: str, kept: str) -> None:
    async with site(says("a")) as at:
        headers = {"traceparent": sent, "x-request-id": "mine\t<1>"}
        await at.client.post("/v1/completions", json={"prompt": "x"}, headers=headers)
        await until(lambda: len(at.observer.records) == 1)
        written = line(at.observer.records[0])
    trace = at.observer.records[0].trace
    assert (written["trace_id"], written["client_request_id"]) == (kept, "mine1")
    assert trace == (Trace(kept, "00f067aa0ba902b7", sampled=not sent.endswith("-00")) if kept else None)


async def test_errors_carry_the_ids_too() -> None:
    async with site(says("a")) as at:
        reply = await at.client.get("/nowhere", headers={"X-Request-Id": "mine"})
    assert reply.headers["x-request-id"] == "mine"
    assert reply.headers["x-tandem-request-id"]


async def test_tokenize_and_detokenize_in_vllms_shapes() -> None:
    async with site(says("a")) as at:
        plain = (await at.client.post("/tokenize", json={"prompt": "hé", "return_token_strs": True})).json()
        chat = (await at.client.post("/tokenize", json={"messages": [{"role": "user", "content": "x"}]})).json()
        back = (await at.client.post("/detokenize", json={"model": "toy", "tokens": plain["tokens"]})).json()
        neither = await at.client.post("/tokenize", json={})
        beyond = await at.client.post("/detokenize", json={"tokens": [1000]})
        empty = await at.client.post("/detokenize", json={"tokens": []})
    assert plain == {
        "count": 3,
        "max_model_len": 4096,
        "tokens": [104, 195, 169],
        "token_strs": ["h", "\\xc3", "\\xa9"],
    }
    assert chat["count"] == len("<user>\nx\n<assistant>\n")
    assert back == {"prompt": "hé"}
    assert (neither.status_code, beyond.status_code) == (400, 400)
    assert empty.json() == {"prompt": ""}


async def test_the_model_list_names_the_window() -> None:
    async with site(says("a")) as at:
        listed = (await at.client.get("/v1/models")).json()
        one = await at.client.get("/v1/models/toy")
        none = await at.client.get("/v1/models/other")
    assert [(entry["id"], entry["max_model_len"]) for entry in listed["data"]] == [("toy", 4096)]
    assert (one.status_code, none.status_code) == (200, 404)
    assert none.json()["error"]["code"] == "model_not_found"


async def test_metrics_responses_are_counted_by_route_pattern() -> None:
    async with site(says("a")) as at:
        await at.chat()
        await at.client.get("/v1/models/toy")
        await at.client.get("/no/such/path")
        assert at.observer.statuses == [
            ("/v1/chat/completions", 200),
            ("/v1/models/{model:path}", 200),
            ("unmatched", 404),
        ]
