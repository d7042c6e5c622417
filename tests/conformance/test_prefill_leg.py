"""Section 1: what the prefill worker is asked for, and that its KV is what the answer is made of."""

import logging
from typing import Any

import pytest

from tests.conformance.replies import CHAT, COMPLETION, COMPLETION_STREAM, FORMS, STREAMS, Form
from tests.conformance.stack import CARRY, REPLAY, Whole, fault, script, shown, text_of, truth, whole, words
from tests.gateway.fleet import BLOCK, FOUR, PAIR, config

EOS = 256
LENGTHS = (CARRY, REPLAY)


def limits_of(form: Form, value: int) -> list[dict[str, Any]]:
    """Every way to say how long the answer may be."""
    if not form.chat:
        return [{"max_tokens": value}]
    newer = {"max_completion_tokens": value}
    return [{"max_tokens": value}, {"max_tokens": None, **newer}, {"max_tokens": value, **newer}]


@pytest.mark.slow
async def test_b01_the_prefill_leg_has_one_token_to_give_and_the_decode_leg_all_the_others() -> None:
    async with whole(PAIR) as one:
        for form in FORMS:
            for at, limit in enumerate(limits_of(form, 50)):
                for length in LENGTHS:
                    for n in (1, 3):
                        one.forget()
                        text = text_of(length, form, seed=at)
                        reply = await one.post(form, text, n=n, ignore_eos=True, **limit)
                        assert reply.counted == 50 * n
                        assert reply.finish() == "length"
                        (prefill,) = one.prefills
                        assert (prefill.sampling.max_tokens, len(prefill.tokens)) == (1, length)
                        carried = len(one.decodes[0].work.tokens) - length
                        assert carried == (1 if n == 1 and length == CARRY else 0)
                        assert [each.work.sampling.max_tokens for each in one.decodes] == [50 - carried] * n
        assert one.members["p0"].engine.stats().generated_tokens == 2 * 2 * (3 + 3 + 1 + 1)
        await one.settled()


@pytest.mark.slow
async def test_b02_min_tokens_reach_the_decode_leg_and_never_exceed_the_prefill_legs_limit() -> None:
    wish: dict[str, Any] = {"logit_bias": {str(EOS): 100}}  # without min_tokens the answer would end at once
    async with whole(PAIR) as one:
        for form in FORMS:
            for length in LENGTHS:
                for low, high in ((5, 100), (5, 5), (1, 100), (1, 1), (0, 100)):
                    one.forget()
                    text = text_of(length, form)
                    reply = await one.post(form, text, min_tokens=low, max_tokens=high, **wish)
                    assert (reply.status, reply.done) == (200, True)
                    wanted = truth(form, text, high, min_tokens=low, logit_bias=((EOS, 100.0),))
                    assert reply.tokens() == wanted
                    assert len(wanted) == min(low + 1, high)
                    assert all(prefill.sampling.min_tokens <= 1 for prefill in one.prefills)
                    for asked in one.decodes:
                        assert asked.work.sampling.min_tokens == max(0, low - (len(asked.work.tokens) - length))
        assert one.watcher.retries == []
        await one.settled()


async def test_b03_streaming_with_usage_is_nothing_that_an_engine_hears_of() -> None:
    """The legs carry no stream flags at all, so the prompt is handed off just as without a stream."""
    async with whole(PAIR) as one:
        for form in STREAMS:
            for n in (1, 2):
                one.forget()
                text = text_of(CARRY, form, seed=n)
                reply = await one.post(form, text, n=n)
                assert reply.done
                assert reply.usage["completion_tokens"] == sum(len(reply.tokens(choice)) for choice in range(n))
                assert len(one.watcher.handoffs) == 1
                plain = Form(form.chat, stream=False)
                one.forget()
                await one.post(plain, text, n=n, cache_salt="another")
                assert [work.sampling for work in one.prefills] == [one.prefills[0].sampling]
        await one.settled()


@pytest.mark.parametrize("kind", ["invalid_request", "context_length", "kv_capacity"])
async def test_b03_a_4xx_of_the_prefill_leg_is_the_clients_answer(kind: str) -> None:
    async with whole(FOUR) as one:
        for name in ("p0", "p1"):
            one.use(name, fault("refuse", "prefill", fault=kind))
        for form in FORMS:
            for n in (1, 3):
                one.forget()
                reply = await one.post(form, text_of(CARRY, form), n=n)
                assert reply.status == 400
                assert reply.error["type"] == "invalid_request_error"
                assert len(one.prefills) == 1  # not tried elsewhere
                assert one.decodes == []  # and not computed behind the client's back
        await one.settled()


ENDS: dict[str, dict[str, Any]] = {
    "stop string": {"stop": True},
    "EOS first": {"logit_bias": {str(EOS): 100}},
    "stop token": {"stop_token_ids": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
async def test_b04_an_answer_that_ends_at_once_is_still_handed_off(end: str) -> None:
    async with whole(PAIR) as one:
        for form in FORMS:
            for length in LENGTHS:
                for n in (1, 2):
                    one.forget()
                    text = text_of(length, form, seed=n)
                    first = truth(form, text)[0]
                    parameters, count = dict(ENDS[end]), 1
                    if "stop" in parameters:
                        character = shown(truth(form, text))[0]
                        parameters["stop"], count = [character], len(character.encode())
                    if "stop_token_ids" in parameters:
                        parameters["stop_token_ids"] = [first]
                    reply = await one.post(form, text, n=n, **parameters)
                    for choice in range(n):
                        assert reply.text(choice) == ""
                        assert reply.finish(choice) == "stop"
                    assert reply.counted == n * count
                    (prefill,) = one.prefills
                    assert prefill.sampling.ignore_eos
                    assert prefill.sampling.stop_token_ids == ()
                    # Whatever decode did, it did with the KV of the prefill worker.
                    assert all(asked.pull is not None for asked in one.decodes[:1])
        assert one.metric("tandem_handoff_missing_total") == 0
        assert one.watcher.retries == []
        await one.settled()


@pytest.mark.parametrize("n", [1, 2])
async def test_b05_every_prompt_of_a_list_has_a_hand_off_of_its_own(n: int) -> None:
    async with whole(PAIR) as one:
        texts = [words(CARRY, 1), words(REPLAY, 2), words(CARRY, 1), words(17, 3)]
        for form in (COMPLETION, COMPLETION_STREAM):
            one.forget()
            reply = await one.post(form, texts, n=n)
            assert reply.choices == set(range(4 * n))
            for choice in range(4 * n):
                assert reply.tokens(choice) == truth(form, texts[choice // n])
            tickets = [asked.pull for asked in one.decodes if asked.pull is not None]
            assert len(tickets) == len({ticket.ticket_id for ticket in tickets}) == 4
            assert len(one.watcher.handoffs) == 4
            assert reply.usage["prompt_tokens"] == sum(map(len, texts))
            again = await one.post(form, texts[1])  # everybody is still alive
            assert again.tokens() == truth(form, texts[1])
        await one.settled()


async def test_b06_n_answers_are_one_prefill_one_hand_off_and_one_charge_for_the_prompt() -> None:
    async with whole(PAIR, settings=config(policy={"rule": "declared"})) as one:
        for form in FORMS:
            for seed, length in enumerate(LENGTHS):
                one.forget()
                text = text_of(length, form, seed)
                reply = await one.post(form, text, n=3, max_tokens=16, temperature=1.0, seed=5)
                assert reply.choices == {0, 1, 2}
                for choice in range(3):
                    assert reply.tokens(choice) == truth(form, text, 16, temperature=1.0, seed=5 + choice)
                assert len(one.prefills) == 1
                assert [asked.pull is not None for asked in one.decodes] == [True, False, False]
                shared, rest = divmod(length, BLOCK)
                assert (await one.account()).reserved_blocks == shared + 3 * -(-(rest + 16) // BLOCK)
            one.forget()
            refused = await one.post(form, text_of(CARRY, form), n=17)
            assert (refused.status, refused.error["code"]) == (400, "invalid_request")
            assert one.asked == []
        await one.settled()


async def test_b07_prompt_logprobs_come_from_the_prefill_leg_and_from_it_alone() -> None:
    async with whole(PAIR) as one:
        for form in (CHAT, COMPLETION):
            for length in LENGTHS:
                for n in (1, 2):
                    one.forget()
                    reply = await one.post(form, text_of(length, form, n), n=n, prompt_logprobs=1)
                    said = [reply.body] if form.chat else reply.body["choices"]
                    for place in said:
                        assert len(place["prompt_logprobs"]) == length
                        assert place["prompt_logprobs"][0] is None
                        assert all(len(entry) >= 1 for entry in place["prompt_logprobs"][1:])
                    assert [work.sampling.prompt_logprobs for work in one.prefills] == [1]
                    assert [asked.work.sampling.prompt_logprobs for asked in one.decodes] == [None] * n
        for form in (COMPLETION, COMPLETION_STREAM):
            for length in LENGTHS:
                one.forget()
                text = words(length, 9)
                reply = await one.post(form, text, echo=True, logprobs=1, ignore_eos=True)
                assert reply.text() == text + shown(truth(form, text, ignore_eos=True))
                assert len(reply.logprobs()) == length + 8
                assert [asked.work.sampling.prompt_logprobs for asked in one.decodes] == [None]
        for form in STREAMS:
            refused = await one.post(form, text_of(CARRY, form), prompt_logprobs=1)
            assert (refused.status, refused.error["param"]) == (400, "prompt_logprobs")
        await one.settled()


async def test_b09_as_many_hand_offs_as_requests_and_the_mode_for_all_to_see() -> None:
    """With nothing configured but that short prompts are handed off, too."""
    async with whole(PAIR) as one:
        ready = (await one.client.get("/readyz")).json()
        assert (ready["ready"], ready["mode"]) == (True, "disaggregated")
        requests = 0
        for seed in range(3):
            for form in FORMS:
                text = text_of(CARRY + seed * 8, form, seed)
                reply = await one.post(form, text)
                requests += 1
                assert reply.headers["x-tandem-path"] == "remote"
                assert reply.tokens() == truth(form, text)
        assert one.metric("tandem_handoffs_total") == requests
        assert one.metric("tandem_handoff_bytes_total") > 0
        # What was not carried was pulled: decode computed no prompt by itself.
        assert all(asked.pull is not None for asked in one.decodes)
        await one.settled()


#: Both workers fail, and there is one retry.
POLICIES = {"fail": (502, 1), "other_then_local": (502, 2), "local": (200, 1)}


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
async def test_b10_missing_hand_off_parameters_are_counted_logged_and_follow_the_policy(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, prefills = POLICIES[policy]
    settings = config(routing={"on_prefill_failure": policy}, health={"failures_to_eject": 100})
    missing = script({"kind": "handoff_missing"})
    async with whole(FOUR, settings=settings, scripts={"p0": missing, "p1": missing}, kv_lease_s=1.0) as one:
        for form in FORMS:
            for length in LENGTHS:
                one.forget()
                caplog.clear()
                before = one.metric("tandem_handoff_missing_total")
                text = text_of(length, form)
                with caplog.at_level(logging.WARNING):
                    reply = await one.post(form, text)
                assert reply.status == status
                assert len(one.prefills) == prefills
                assert one.metric("tandem_handoff_missing_total") - before == prefills
                warnings = [entry for entry in caplog.records if "hand-off missing" in entry.getMessage()]
                assert len(warnings) == prefills
                if reply.status == 200:
                    assert (reply.headers["x-tandem-path"], reply.tokens()) == ("local", truth(form, text))
                else:
                    assert reply.error["code"] == "handoff_failed"
        await one.settled(2.0)


async def test_b10_a_recompute_is_never_silent() -> None:
    """Every answer that decode computed alone says so, in its header and in the counter."""
    async with whole(PAIR) as one:
        one.use("p0", {"kind": "handoff_missing", "times": 2})
        local = await _paths(one, 4)
        assert local.count("local") == one.metric("tandem_handoff_missing_total") == 2
        assert one.metric("tandem_retries_total", reason="handoff_failed") == 2


async def _paths(one: Whole, count: int) -> list[str]:
    replies = [await one.post(COMPLETION, words(CARRY, seed)) for seed in range(count)]
    return [reply.headers["x-tandem-path"] for reply in replies]
