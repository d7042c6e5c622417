"""Whole answers: text, counts, reasons, logprobs, echo."""

from collections.abc import AsyncIterator

import pytest

from gateway.request.answer import Piece
from gateway.request.intent import Intent
from proto.work import FinishReason
from tests.gateway.http.scripted import EOS, Batch, Script, events, logprobs_of, piece, says, site


def with_logprobs(*parts: str) -> Script:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        for at, text in enumerate(parts):
            last = at == len(parts) - 1
            tokens = tuple(text.encode()) + ((EOS,) if last else ())
            first = piece(0, tokens, finish=FinishReason.STOP if last else None, first=at == 0, logprobs=True)
            entries = (None, *(logprobs_of(token) for token in intent.prompts[0][1:]))
            if at == 0 and intent.sampling.prompt_logprobs is not None:
                first = Piece(0, first.tokens, first.logprobs, first.finish, True, 0, entries)
            yield (first,)

    return script


async def test_an_answer_has_text_reason_and_counts_from_token_ids() -> None:
    async with site(says("hello", " you", cached=16)) as at:
        body = (await at.chat()).json()
        assert at.observer.records[0].completion_tokens == 10
        assert at.observer.shown == 10
    assert body["object"] == "chat.completion"
    choice = body["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "hello you", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 10  # the EOS token counts, as it does in the engine
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 16


async def test_a_stop_token_is_counted_and_named_but_not_shown() -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        yield (piece(0, (97, 98, 120), finish=FinishReason.STOP, first=True),)

    async with site(script) as at:
        hidden = (await at.chat(stop_token_ids=[120])).json()
        kept = (await at.chat(stop_token_ids=[120], include_stop_str_in_output=True)).json()
    assert hidden["choices"][0]["message"]["content"] == "ab"
    assert hidden["choices"][0]["stop_reason"] == 120
    assert hidden["usage"]["completion_tokens"] == 3
    assert kept["choices"][0]["message"]["content"] == "abx"


async def test_special_tokens_show_when_asked_for() -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        yield (piece(0, (97, EOS, 98), finish=FinishReason.LENGTH, first=True),)

    async with site(script) as at:
        assert (await at.complete()).json()["choices"][0]["text"] == "ab"
        assert (await at.complete(skip_special_tokens=False)).json()["choices"][0]["text"] == "a w256b"


async def test_stop_strings_end_the_answer_and_the_count_at_their_last_token() -> None:
    async with site(says("one END two")) as at:
        cut = (await at.complete(stop=["END", "two"])).json()
        kept = (await at.complete(stop="END", include_stop_str_in_output=True)).json()
        late = (await at.complete(stop="END", min_tokens=8, max_tokens=50)).json()
    assert (cut["choices"][0]["text"], cut["choices"][0]["stop_reason"]) == ("one ", "END")
    assert cut["choices"][0]["finish_reason"] == "stop"
    assert cut["usage"]["completion_tokens"] == 7
    assert kept["choices"][0]["text"] == "one END"
    assert late["choices"][0]["text"] == "one END two"


@pytest.mark.parametrize("stream", [False, True])
async def test_b15_chat_logprobs_are_as_many_as_completion_tokens(stream: bool) -> None:
    async with site(with_logprobs("a日", "b")) as at:
        options = {"stream_options": {"include_usage": True}} if stream else {}
        reply = await at.chat(logprobs=True, top_logprobs=2, stream=stream, **options)
        assert at.intent.sampling.logprobs == 2
    if stream:
        parsed = events(reply.text)[:-1]
        usage = parsed[-1]["usage"]
        chosen = [c["choices"][0]["logprobs"] for c in parsed[:-1]]
        entries = [entry for logprobs in chosen if logprobs for entry in logprobs["content"]]
    else:
        body = reply.json()
        usage, entries = body["usage"], body["choices"][0]["logprobs"]["content"]
    assert len(entries) == usage["completion_tokens"] == 6
    assert entries[0]["token"] == "a"
    assert entries[0]["logprob"] == -1.0
    assert [top["token"] for top in entries[0]["top_logprobs"]] == ["x", "a"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries[1:4]).decode() == "日"


async def test_completion_logprobs_are_parallel_arrays_with_offsets() -> None:
    async with site(with_logprobs("ab")) as at:
        choice = (await at.complete(logprobs=1)).json()["choices"][0]
    logprobs = choice["logprobs"]
    assert logprobs["tokens"][:2] == ["a", "b"]
    assert logprobs["token_logprobs"] == [-1.0] * 3
    assert logprobs["top_logprobs"][0] == {"a": -1.0, "x": -0.5}
    assert logprobs["text_offset"][:2] == [0, 1]


async def test_b07_echo_brings_the_prompts_own_logprobs() -> None:
    async with site(with_logprobs("cd")) as at:
        choice = (await at.complete("xy", echo=True, logprobs=0)).json()["choices"][0]
        assert at.intent.sampling.prompt_logprobs == 0
        ids = (await at.complete([120, 121], echo=True)).json()["choices"][0]
    assert choice["text"] == "xycd"
    assert choice["logprobs"]["tokens"][:4] == ["x", "y", "c", "d"]
    assert choice["logprobs"]["token_logprobs"] == [None, *[-1.0] * 4]
    assert choice["logprobs"]["text_offset"][:4] == [0, 1, 2, 3]
    assert ids["text"] == "xycd"


async def test_b07_prompt_logprobs_are_by_token_id() -> None:
    async with site(with_logprobs("c")) as at:
        completion = (await at.complete("xy", prompt_logprobs=1)).json()["choices"][0]["prompt_logprobs"]
        chat = (await at.chat(prompt_logprobs=1)).json()["prompt_logprobs"]
    assert completion[0] is None
    assert completion[1]["121"]["logprob"] in (-1.0, -2.0)
    assert chat[0] is None
    assert len(chat) > 2


async def test_b05_a_list_of_prompts_gives_numbered_answers() -> None:
    async with site(says("z")) as at:
        body = (await at.complete([[97], [98, 99]], n=2, echo=True)).json()
        assert at.intent.prompts == ((97,), (98, 99))
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [
        (0, "az"),
        (1, "az"),
        (2, "bcz"),
        (3, "bcz"),
    ]
    assert body["usage"]["prompt_tokens"] == 3


async def test_token_ids_come_back_when_asked_for() -> None:
    async with site(says("ab")) as at:
        body = (await at.complete([120], return_token_ids=True)).json()["choices"][0]
        chat = (await at.chat(return_token_ids=True)).json()
    assert (body["prompt_token_ids"], body["token_ids"]) == ([120], [97, 98, EOS])
    assert chat["choices"][0]["token_ids"] == [97, 98, EOS]
    assert bytes(chat["prompt_token_ids"]).startswith(b"<user>")


async def test_an_infinite_logprob_is_still_json() -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        endless = logprobs_of(97)
        entry = type(endless)(endless.token_ids, (float("-inf"), -0.5, float("-inf")), endless.ranks)
        yield (Piece(0, (97,), (entry,), FinishReason.LENGTH, True),)

    async with site(script) as at:
        body = (await at.chat(logprobs=True, top_logprobs=3)).json()
    assert body["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0
