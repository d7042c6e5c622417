"""Sections 6, 7 and 9: who may talk to whom, whether KV means the same to both, and what is charged."""

import asyncio
from typing import Any

import pytest

from gateway.cluster.states import PairState, WorkerStatus
from proto.worker import Role
from tests.conformance.replies import CHAT, COMPLETION, FORMS
from tests.conformance.stack import CARRY, REPLAY, text_of, truth, whole
from tests.examples import first
from tests.gateway.fleet import BLOCK, PAIR, SOLO, config, until

#: What an attacker, or a client of another server, might send along.
FOREIGN: tuple[dict[str, Any], ...] = (
    {"kv_transfer_params": {"do_remote_prefill": True, "remote_host": "10.0.0.1", "remote_port": 1}},
    {"kv_transfer_params": None},
    {"kv_transfer_params": {}},
    {"kv_transfer_config": {"kv_role": "kv_both"}},
    {"remote_host": "10.0.0.1"},
    {"remote_port": 5557},
    {"remote_engine_id": "x"},
    {"remote_block_ids": [1, 2, 3]},
    {"do_remote_prefill": True},
    {"do_remote_decode": False},
    {"disagg_params": {"request_type": "context_only"}},
    {"disaggregated_params": None},
    {"bootstrap_host": "10.0.0.1", "bootstrap_port": 8998},
    {"vllm_xargs": {"kv_transfer_params": {"remote_host": "10.0.0.1"}}},
    {"extra_body": {"kv_transfer_params": {}}},
    {"KV_transfer_params": {}},
    {"response_format": {"type": "text", "kv_transfer_params": {}}},
)


async def test_b60_no_body_tells_the_fleet_whom_to_talk_to() -> None:
    async with whole(PAIR) as one:
        for form in FORMS:
            for fields in FOREIGN:
                # `post` leaves out what is None; here a null must arrive as one.
                body = {**one.body(form, text_of(CARRY, form)), **fields}
                reply = await one.client.post(form.path, json=body)
                assert reply.status_code == 400, fields
                error = reply.json()["error"]
                assert error["type"] == "invalid_request_error"
                assert (error["param"] or "").partition(".")[0] in fields
            if form.chat:
                messages = [{"role": "user", "content": "x", "kv_transfer_params": {}}]
                body = {**one.body(form, "x"), "messages": messages}
                assert (await one.client.post(form.path, json=body)).status_code == 400
            if form.stream:
                options = {"include_usage": True, "remote_host": "10.0.0.1"}
                body = {**one.body(form, "x"), "stream_options": options}
                assert (await one.client.post(form.path, json=body)).status_code == 400
        assert one.asked == []
        assert one.cluster.integrity().idle


async def test_b60_peers_are_those_of_the_registry() -> None:
    """What a decode worker pulls from is what a prefill worker of the fleet has issued, whatever the client sent."""
    async with whole(PAIR) as one:
        headers = {"x-remote-host": "10.0.0.1", "x-kv-transfer-params": "{}", "x-request-id": "10.0.0.1:5557"}
        for form in FORMS:
            one.forget()
            body = one.body(form, text_of(CARRY, form), user="kv_transfer_params", metadata={"remote_host": "10.0.0.1"})
            reply = await one.client.post(form.path, json=body, headers=headers)
            assert reply.status_code == 200
            (ticket,) = [asked.pull for asked in one.decodes if asked.pull is not None]
            assert (ticket.worker_id, ticket.epoch) == ("p0", one.members["p0"].worker.duty.epoch)
            assert b"10.0.0.1" not in ticket.engine_params
            assert all("10.0.0.1" not in asked.work.request_id for asked in one.asked)  # public ids are no keys
        await one.settled()


@pytest.mark.slow
async def test_b62_workers_of_another_model_get_nothing_under_load() -> None:
    async with whole(PAIR) as one:
        await one.add("p1", Role.PREFILL, served_name="another")
        await one.add("d1", Role.DECODE, served_name="another")
        for name in ("p1", "d1"):
            assert "serves another" in (await one.status(name, WorkerStatus.EJECTED)).reason
        one.forget()
        requests = [(FORMS[seed % 4], text_of(CARRY, FORMS[seed % 4], seed)) for seed in range(40)]
        replies = await asyncio.gather(*[one.post(form, text) for form, text in requests])
        for reply, (form, text) in zip(replies, requests, strict=True):
            assert reply.tokens() == truth(form, text)
        assert {asked.worker for asked in one.asked} == {"p0", "d0"}
        pairs = one.cluster.snapshot().pairs
        usable = [(pair.prefill_worker, pair.decode_worker) for pair in pairs if pair.state is PairState.USABLE]
        assert usable == [("p0", "d0")]
        for form in FORMS:
            reply = await one.post(form, text_of(CARRY, form), model="another")
            assert (reply.status, reply.error["code"]) == (404, "model_not_found")


@pytest.mark.slow
async def test_b63_a_prompt_asked_again_is_answered_as_before_and_as_colocated() -> None:
    """Cold, half cached and wholly cached on either side; on the real engine: tests/e2e/test_disaggregated.py."""
    async with whole(PAIR) as one, whole(SOLO) as alone:
        for length in (16, 17, 32, 33, CARRY, REPLAY, 64, 65):
            for form in FORMS:
                if length <= len(form.tokens("")):
                    continue
                text = text_of(length, form, seed=length)
                wanted = truth(form, text, 20, ignore_eos=True)
                for _ in range(3):
                    reply = await one.post(form, text, max_tokens=20, ignore_eos=True)
                    assert reply.headers["x-tandem-path"] == "remote"
                    assert reply.tokens() == wanted
                assert (await alone.post(form, text, max_tokens=20, ignore_eos=True)).tokens() == wanted
        await one.settled()


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "block size": ({"block_size_tokens": 32}, "block size differs"),
    "pipeline": ({"pp": 2}, "pipeline stages differ"),
    "tensor parallel degree": ({"tp": 3}, "tensor parallel degrees"),
}


@pytest.mark.parametrize("name", first(1, UNFIT))
@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
async def test_b64_a_pair_that_does_not_fit_is_refused_when_it_meets(name: str, role: Role) -> None:
    options, reason = UNFIT[name]
    mate = Role.DECODE if role is Role.PREFILL else Role.PREFILL
    async with whole((("a0", mate),), tp=2) as one:
        await one.add("odd", role, **{"tp": 2, **options})
        await one.ready()
        await until(lambda: len(one.cluster.snapshot().pairs) == 1)
        (pair,) = one.cluster.snapshot().pairs
        assert (pair.state, reason in pair.reason) == (PairState.INCOMPATIBLE, True), pair.reason
        missing = (await one.client.get("/readyz")).json()["missing"]
        assert reason in missing
        one.forget()
        for form in FORMS:
            reply = await one.post(form, text_of(CARRY, form))
            assert (reply.status, reply.error["code"]) == (503, "no_prefill_worker")
        assert one.asked == []
        assert one.metric("tandem_pair_state", state="incompatible") == 1
        await one.add("fits", role, tp=4)  # and with one that fits, the other keeps out
        await one.ready()
        for form in FORMS:
            text = text_of(CARRY, form)
            assert (await one.post(form, text)).tokens() == truth(form, text)
        assert "odd" not in {asked.worker for asked in one.asked}


@pytest.mark.slow
async def test_b71_an_answer_without_a_limit_is_charged_the_default_after_the_whole_prompt() -> None:
    """The prompt that counts is the one that the engine sees, template and all."""
    settings = config(admission={"default_output_tokens": 48}, policy={"rule": "declared"})
    async with whole(PAIR, settings=settings, max_model_len=256) as one:
        for form in FORMS:
            for length in (CARRY, REPLAY, 230):
                for n in (1, 2):
                    one.forget()
                    text = text_of(length, form)
                    reply = await one.post(form, text, n=n, max_tokens=None, ignore_eos=True)
                    assert reply.usage["prompt_tokens"] == length
                    growth = min(48, 256 - length)  # bounded by the window
                    shared, rest = divmod(length, BLOCK)
                    assert (await one.account()).reserved_blocks == shared + n * -(-(rest + growth) // BLOCK)
                    for choice in range(n):
                        assert len(reply.tokens(choice)) == 256 - length
                        assert reply.finish(choice) == "length"
        await one.settled()
    assert len(CHAT.tokens("")) > len(COMPLETION.tokens(""))
