"""Section 2: one answer out of two legs, in which the seam cannot be found."""

import asyncio
from typing import Any

import pytest

from gateway.request.errors import Reason
from tests.conformance.replies import CHAT, CHAT_STREAM, FORMS, STREAMS, Form
from tests.conformance.stack import CARRY, REPLAY, Whole, fault, script, shown, text_of, truth, whole
from tests.engine.simulated.hold import before_each_step
from tests.examples import first
from tests.gateway.fleet import FOUR, PAIR, SOLO, config

LENGTHS = (CARRY, REPLAY)
#: The first byte of a character of four: whoever draws it must draw the other three.
WIDE: dict[str, Any] = {"logit_bias": {"240": 100}, "ignore_eos": True}
FACE = "😀"


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2])
async def test_b11_cached_tokens_are_the_prefill_workers_whatever_the_decode_worker_says(n: int) -> None:
    """The decode engine counts the KV that it was handed as cached; here it also exaggerates."""
    boast = fault("wrong_count", "pull", cached_tokens=4096)
    async with whole(PAIR, scripts={"d0": script(boast)}) as one:
        for at, form in enumerate(FORMS):
            for length in LENGTHS:
                text = text_of(length, form, seed=at)
                salt: dict[str, Any] = {"cache_salt": f"{form} {length}"}
                cold = await one.post(form, text, n=n, **salt)
                warm = await one.post(form, text, n=n, **salt)
                assert (cold.cached, warm.cached) == (0, 32)  # full blocks, never the whole prompt
                assert cold.usage["prompt_tokens"] == length
        running = {"include_usage": True, "continuous_usage_stats": True}
        for form in STREAMS:
            reply = await one.post(form, text_of(CARRY, form, seed=9), n=n, stream_options=running)
            said = {
                chunk["usage"]["prompt_tokens_details"]["cached_tokens"] for chunk in reply.chunks if chunk["usage"]
            }
            assert said == {0}
        await one.settled()


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2])
async def test_b12_counts_and_finish_reasons_are_the_engines_not_the_texts(n: int) -> None:
    """Eight tokens that make two characters; nine that stop inside a third."""
    async with whole(PAIR) as one:
        for form in FORMS:
            for length in LENGTHS:
                for limit, text in ((8, 2 * FACE), (9, 2 * FACE + "\ufffd"), (3, "\ufffd"), (1, "\ufffd")):
                    reply = await one.post(form, text_of(length, form), n=n, max_tokens=limit, **WIDE)
                    for choice in range(n):
                        assert (reply.text(choice), reply.finish(choice)) == (text, "length")
                        assert len(reply.tokens(choice)) == limit
                    assert reply.counted == n * limit
        await one.settled()


@pytest.mark.parametrize("n", [1, 3])
async def test_b13_one_identity_and_one_role_for_the_whole_stream(n: int) -> None:
    async with whole(PAIR) as one:
        seen = set()
        for form in STREAMS:
            for length in LENGTHS:
                reply = await one.post(form, text_of(length, form), n=n, max_tokens=12, ignore_eos=True)
                heads = {(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in reply.chunks}
                assert len(heads) == 1
                seen |= {head[0] for head in heads}
                for choice in range(n):
                    roles = [entry["delta"].get("role") for entry in reply.entries(choice) if form.chat]
                    assert roles[:1] == (["assistant"] if form.chat else [])
                    assert not any(roles[1:])
                    assert reply.tokens(choice) == truth(form, text_of(length, form), 12, ignore_eos=True)
        assert len(seen) == 4  # and another one for every request


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2])
async def test_b15_every_token_has_its_logprob_the_first_one_too(n: int) -> None:
    async with whole(PAIR) as one, whole(SOLO) as alone:
        for form in FORMS:
            wish: dict[str, Any] = {"logprobs": True, "top_logprobs": 2} if form.chat else {"logprobs": 2}
            for length in LENGTHS:
                for limit in (1, 2, 20):
                    text = text_of(length, form, seed=limit)
                    reply = await one.post(form, text, n=n, max_tokens=limit, **wish)
                    whole_one = await alone.post(form, text, n=n, max_tokens=limit, **wish)
                    for choice in range(n):
                        assert len(reply.logprobs(choice)) == len(reply.tokens(choice))
                        assert reply.logprobs(choice) == whole_one.logprobs(choice)  # in place, not merely as many
                    assert reply.counted == sum(len(reply.tokens(choice)) for choice in range(n))
        assert one.watcher.retries == []
        await one.settled()


@pytest.mark.slow
async def test_b16_tokens_are_passed_on_as_they_are_made() -> None:
    """The engine makes no token before the client has read something of the one before: who waits for more, waits for ever."""
    async with whole(PAIR, profile="toy") as one:
        decode, read = one.members["d0"].engine, asyncio.Event()
        reads = made = 0

        def look() -> int:
            nonlocal reads
            reads += 1
            read.set()
            return reads

        async def read_before_more() -> None:
            while decode.stats().generated_tokens - made > reads:
                read.clear()
                await read.wait()

        before_each_step(decode.injector, read_before_more)
        for form in STREAMS:
            for length in LENGTHS:
                reads, made = 0, decode.stats().generated_tokens
                reply = await one.post(form, text_of(length, form), look, max_tokens=200, ignore_eos=True)
                assert reply.counted == 200
        await one.settled()


@pytest.mark.slow
async def test_b17_what_is_read_out_of_the_text_spans_both_legs() -> None:
    """A marker whose first character is the prefill leg's and whose rest is the decode leg's is still one marker."""
    async with whole(PAIR) as one:
        for form in FORMS:
            for length in LENGTHS:
                for n in (1, 2):
                    text = text_of(length, form, seed=11)
                    told = shown(truth(form, text, 12, ignore_eos=True))
                    marker = told[:4]
                    wish: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True, "n": n}
                    cut = await one.post(form, text, stop=[marker], **wish)
                    kept = await one.post(form, text, stop=[marker], include_stop_str_in_output=True, **wish)
                    later = await one.post(form, text, stop=[told[0] + "\n", told[1:5]], **wish)
                    for choice in range(n):
                        assert (cut.text(choice), cut.finish(choice)) == ("", "stop")
                        assert (kept.text(choice), kept.finish(choice)) == (marker, "stop")
                        # What only looked like the marker's beginning is text after all.
                        assert (later.text(choice), later.finish(choice)) == (told[0], "stop")
                    face = await one.post(form, text, max_tokens=4, n=n, **WIDE)
                    assert [face.text(choice) for choice in range(n)] == [FACE] * n
                    assert "\ufffd" not in "".join(face.pieces())
        carried = [asked for asked in one.decodes if len(asked.work.tokens) == CARRY + 1]
        assert carried  # the seam was inside the marker
        await one.settled()


@pytest.mark.slow
@pytest.mark.parametrize("form", [CHAT, CHAT_STREAM], ids=str)
async def test_b17_reasoning_is_told_apart_though_its_mark_begins_on_the_prefill_leg(form: Form) -> None:
    text = text_of(CARRY, form, seed=11)
    told = shown(truth(form, text, 12, ignore_eos=True))
    start, end = told[:2], told[6:8]
    settings = config(reasoning_parser="think", reasoning_start=start, reasoning_end=end)
    async with whole(PAIR, settings=settings) as one:
        reply = await one.post(form, text, max_tokens=12, ignore_eos=True)
        carried = [asked for asked in one.decodes if len(asked.work.tokens) == CARRY + 1]
        await one.settled()
    assert len(carried) == 1  # the seam was inside the mark
    said = [entry["delta" if form.stream else "message"] for entry in reply.entries()]
    names = ("reasoning_content", "reasoning", "content")
    message = {name: "".join([part.get(name) or "" for part in said]) for name in names}
    assert message == {"reasoning_content": told[2:6], "reasoning": told[2:6], "content": told[8:]}
    assert reply.usage["completion_tokens_details"] == {"reasoning_tokens": 4}


BREAKS: dict[str, tuple[str, dict[str, Any]]] = {
    "prefill refuses": ("p", fault("refuse", "prefill", fault="internal")),
    "prefill fails": ("p", fault("fail", "prefill", after_tokens=0)),
    "decode refuses": ("d", fault("refuse", "pull", fault="internal")),
    "decode fails": ("d", fault("fail", "pull", after_tokens=0)),
}


@pytest.mark.parametrize("name", first(2, BREAKS))
@pytest.mark.parametrize("n", [1, 2])
async def test_b18_a_failure_before_any_output_is_an_error_and_nothing_else(name: str, n: int) -> None:
    pool, rule = BREAKS[name]
    settings = config(health={"failures_to_eject": 1000})
    async with whole(FOUR, settings=settings) as one:
        for number in (0, 1):
            one.use(f"{pool}{number}", rule)
        for form in FORMS:
            one.forget()
            await _only_an_error(one, form, n)
        assert one.metric("tandem_completion_tokens_total") == 0
        assert one.metric("tandem_requests_total", outcome="done") == 0
        await one.settled()


async def _only_an_error(one: Whole, form: Form, n: int) -> None:
    reply = await one.post(form, text_of(REPLAY, form), n=n)
    assert reply.status == 502
    assert reply.headers["content-type"] == "application/json"
    assert set(reply.body) == {"error"}
    assert reply.error["code"] in (Reason.PREFILL_FAILED, Reason.DECODE_FAILED)
    assert reply.error["message"]
    record = await one.account()
    assert (record.completion_tokens, record.first_token_s) == (0, None)
