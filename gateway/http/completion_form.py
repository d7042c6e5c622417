"""text_completion, whole and in chunks."""

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.http.choice import Shown
from gateway.http.form import END, EVENT, Collected, Head, Usage
from gateway.http.logprobs import CompletionLogprobs, join, prompt_entries
from gateway.text.base import Tokenizer
from proto.work import PromptLogprobs


class CompletionForm:
    """Choices of several prompts are numbered through: prompt index times `n` plus answer index (B-05).

    `echoes` holds one text a prompt when prompts are to be repeated before their answers, else nothing.
    `prompt_logprobs` says whether the client asked to see them apart from an echo.
    """

    def __init__(
        self,
        head: Head,
        tokenizer: Tokenizer,
        prompts: tuple[tuple[int, ...], ...],
        *,
        n: int,
        echoes: tuple[str, ...],
        top: int | None,
        prompt_logprobs: bool,
        usage_field: bool,
        token_ids: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._n = n
        self._echoes = echoes
        self._top = top
        self._show_prompt_logprobs = prompt_logprobs
        self._usage_field = usage_field
        self._token_ids = token_ids
        self._plain = top is None and not token_ids
        self._arrays: dict[int, CompletionLogprobs] = {}
        self._base = {"id": head.answer_id, "object": "text_completion", "created": head.created, "model": head.model}
        self._start = EVENT + orjson.dumps(self._base)[:-1] + b',"choices":[{"index":'
        self._end = b',"logprobs":null,"finish_reason":null}]' + (b',"usage":null' if usage_field else b"") + b"}" + END

    def opening(self, index: int, prompt_logprobs: PromptLogprobs) -> bytes:
        """The echoed prompt, if any; else nothing."""
        if not self._echoes and not self._token_ids:
            return b""
        prompt = self._prompts[index // self._n]
        choice = self._entry(index, self._echo(index))
        if self._echoes and self._top is not None:
            choice["logprobs"] = self._arrays_of(index).of_prompt(prompt, prompt_logprobs)
        if self._token_ids:
            choice["prompt_token_ids"] = prompt
        return self._event(choice, None)

    def chunk(self, index: int, shown: Shown, usage: Usage | None) -> bytes:
        if self._plain and shown.finish is None and usage is None:
            if not shown.text:
                return b""
            return b"".join((self._start, b"%d" % index, b',"text":', orjson.dumps(shown.text), self._end))
        choice = self._entry(index, shown.text)
        choice["finish_reason"] = shown.finish
        choice["stop_reason"] = shown.stop_reason
        if self._top is not None:
            choice["logprobs"] = self._arrays_of(index).of_answer(shown.logprobs)
        if self._token_ids:
            choice["token_ids"] = shown.tokens
        return self._event(choice, usage)

    def _event(self, choice: dict[str, Any], usage: Usage | None) -> bytes:
        body: dict[str, Any] = {**self._base, "choices": [choice]}
        if usage is not None or self._usage_field:
            body["usage"] = usage.as_json() if usage else None
        return EVENT + orjson.dumps(body) + END

    def closing(self, usage: Usage, extra: dict[str, Any] | None) -> bytes:
        return EVENT + orjson.dumps({**self._base, "choices": [], "usage": usage.as_json(), **(extra or {})}) + END

    def document(self, choices: Sequence[Collected], usage: Usage, extra: dict[str, Any] | None) -> dict[str, Any]:
        return {
            **self._base,
            "choices": [self._choice(choice) for choice in choices],
            "usage": usage.as_json(),
            **(extra or {}),
        }

    def _choice(self, choice: Collected) -> dict[str, Any]:
        entry = self._entry(choice.index, self._echo(choice.index) + choice.text)
        entry["finish_reason"] = choice.last.finish
        entry["stop_reason"] = choice.last.stop_reason
        prompt = self._prompts[choice.index // self._n]
        if self._top is not None:
            arrays = self._arrays_of(choice.index)
            echoed = arrays.of_prompt(prompt, choice.prompt_logprobs) if self._echoes else None
            answer = arrays.of_answer([one for shown in choice.shown for one in shown.logprobs])
            entry["logprobs"] = join(echoed, answer) if echoed else answer
        if self._show_prompt_logprobs:
            entry["prompt_logprobs"] = prompt_entries(self._tokenizer, choice.prompt_logprobs)
        if self._token_ids:
            entry["prompt_token_ids"] = prompt
            entry["token_ids"] = choice.tokens
        return entry

    def _entry(self, index: int, text: str) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": None, "stop_reason": None}

    def _echo(self, index: int) -> str:
        return self._echoes[index // self._n] if self._echoes else ""

    def _arrays_of(self, index: int) -> CompletionLogprobs:
        if index not in self._arrays:
            self._arrays[index] = CompletionLogprobs(self._tokenizer, self._top or 0)
        return self._arrays[index]
