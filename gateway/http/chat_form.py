"""chat.completion and chat.completion.chunk."""

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.http.choice import Shown
from gateway.http.form import END, EVENT, Collected, Head, Usage
from gateway.http.logprobs import chat_entries, prompt_entries
from gateway.parsers.said import CallDelta
from gateway.text.base import Tokenizer
from proto.work import PromptLogprobs

CHAT_PREFIX = "chatcmpl-"


class ChatForm:
    """`top` is None without logprobs. Plain text chunks are put together from bytes that were encoded once."""

    def __init__(
        self,
        head: Head,
        tokenizer: Tokenizer,
        prompt: tuple[int, ...],
        *,
        top: int | None,
        usage_field: bool,
        token_ids: bool,
    ) -> None:
        self._head = head
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._top = top
        self._token_ids = token_ids
        self._plain = top is None and not token_ids
        self._base = {
            "id": head.answer_id,
            "object": "chat.completion.chunk",
            "created": head.created,
            "model": head.model,
        }
        self._call = "call_" + head.answer_id.removeprefix(CHAT_PREFIX)
        self._usage_field = usage_field
        start = orjson.dumps(self._base)[:-1] + b',"choices":[{"index":'
        self._start = EVENT + start
        self._content = b',"delta":{"content":'
        self._reasoning = b',"delta":{"reasoning_content":'
        self._again = b',"reasoning":'
        self._end = (
            b'},"logprobs":null,"finish_reason":null}]' + (b',"usage":null' if usage_field else b"") + b"}" + END
        )

    def opening(self, index: int, prompt_logprobs: PromptLogprobs) -> bytes:
        """The role, once (B-13)."""
        extra = {"prompt_token_ids": self._prompt} if self._token_ids else None
        return self._event(index, {"role": "assistant", "content": ""}, None, extra)

    def chunk(self, index: int, shown: Shown, usage: Usage | None) -> bytes:
        if self._plain and shown.finish is None and usage is None and not shown.calls:
            if not shown.reasoning:
                if not shown.text:
                    return b""
                return b"".join((self._start, b"%d" % index, self._content, orjson.dumps(shown.text), self._end))
            if not shown.text:
                text = orjson.dumps(shown.reasoning)
                return b"".join((self._start, b"%d" % index, self._reasoning, text, self._again, text, self._end))
        delta = _reasoning(shown.reasoning)
        if shown.calls:
            delta["tool_calls"] = [self._call_delta(index, call) for call in shown.calls]
        if shown.text or (shown.finish is None and not delta):
            delta["content"] = shown.text
        extra = {"token_ids": shown.tokens} if self._token_ids else None
        return self._event(index, delta, shown, extra, usage)

    def _event(
        self,
        index: int,
        delta: dict[str, Any],
        shown: Shown | None,
        extra: dict[str, Any] | None = None,
        usage: Usage | None = None,
    ) -> bytes:
        choice: dict[str, Any] = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        if shown is not None:
            choice["finish_reason"] = shown.finish
            if shown.stop_reason is not None:
                choice["stop_reason"] = shown.stop_reason
            if self._top is not None:
                choice["logprobs"] = {"content": chat_entries(self._tokenizer, shown.logprobs, self._top)}
        body: dict[str, Any] = {**self._base, "choices": [{**choice, **(extra or {})}]}
        if usage is not None or self._usage_field:
            body["usage"] = usage.as_json() if usage else None
        return EVENT + orjson.dumps(body) + END

    def closing(self, usage: Usage, extra: dict[str, Any] | None) -> bytes:
        return EVENT + orjson.dumps({**self._base, "choices": [], "usage": usage.as_json(), **(extra or {})}) + END

    def document(self, choices: Sequence[Collected], usage: Usage, extra: dict[str, Any] | None) -> dict[str, Any]:
        body: dict[str, Any] = {
            **self._base,
            "object": "chat.completion",
            "choices": [self._choice(choice) for choice in choices],
            "usage": usage.as_json(),
            **(extra or {}),
        }
        if choices[0].prompt_logprobs:
            body["prompt_logprobs"] = prompt_entries(self._tokenizer, choices[0].prompt_logprobs)
        if self._token_ids:
            body["prompt_token_ids"] = self._prompt
        return body

    def _choice(self, choice: Collected) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "index": choice.index,
            "message": self._message(choice),
            "logprobs": None,
            "finish_reason": choice.last.finish,
            "stop_reason": choice.last.stop_reason,
        }
        if self._top is not None:
            entries = [entry for shown in choice.shown for entry in shown.logprobs]
            entry["logprobs"] = {"content": chat_entries(self._tokenizer, entries, self._top)}
        if self._token_ids:
            entry["token_ids"] = choice.tokens
        return entry

    def _message(self, choice: Collected) -> dict[str, Any]:
        """Reasoning or calls without text leave no content: not an empty one."""
        said = {**_reasoning(choice.reasoning)}
        if calls := choice.calls:
            said["tool_calls"] = [self._call_delta(choice.index, call, whole=True) for call in calls]
        return {
            "role": "assistant",
            "content": choice.text if choice.text or not said else None,
            "refusal": None,
            **said,
        }

    def _call_delta(self, choice: int, call: CallDelta, *, whole: bool = False) -> dict[str, Any]:
        """The id and the name come once, with the first part."""
        index = {} if whole else {"index": call.index}
        if not call.name:
            return {**index, "function": {"arguments": call.arguments}}
        name = f"{self._call}_{choice}_{call.index}"
        return {
            **index,
            "id": name,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }


def _reasoning(text: str) -> dict[str, Any]:
    """Under both names that clients look for: DeepSeek's, which most have taken over, and that of later vLLM."""
    return {"reasoning_content": text, "reasoning": text} if text else {}
