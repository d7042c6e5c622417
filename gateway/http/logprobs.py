"""Log-probabilities in the two shapes of the OpenAI API."""

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.text.base import Tokenizer
from proto.work import PromptLogprobs, TokenLogprobs

#: JSON has no minus infinity; this is what OpenAI sends for it.
FLOOR = -9999.0


def _finite(logprob: float) -> float:
    return logprob if logprob > FLOOR else FLOOR


def _best(entry: TokenLogprobs, count: int) -> list[tuple[int, float]]:
    """The `count` likeliest tokens, whether or not the engine repeats the sampled one among them."""
    known = dict(zip(entry.token_ids, entry.logprobs, strict=True))
    return sorted(known.items(), key=lambda item: -item[1])[:count]


def _spell(data: bytes, prefix: str) -> str:
    """Tokens that are only part of a character are spelled as escaped bytes, as OpenAI does."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return prefix + "".join(f"\\x{byte:02x}" for byte in data)


def chat_entries(tokenizer: Tokenizer, entries: Iterable[TokenLogprobs], top: int) -> list[dict[str, Any]]:
    return [
        {
            **_chat_token(tokenizer, entry.token_ids[0], entry.logprobs[0]),
            "top_logprobs": [_chat_token(tokenizer, token, logprob) for token, logprob in _best(entry, top)],
        }
        for entry in entries
    ]


def _chat_token(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    return {"token": _spell(data, ""), "logprob": _finite(logprob), "bytes": list(data)}


class CompletionLogprobs:
    """Parallel arrays with the offset of each token in the text, which runs on over a whole stream."""

    def __init__(self, tokenizer: Tokenizer, top: int) -> None:
        self._tokenizer = tokenizer
        self._top = top
        self._offset = 0

    def of_prompt(self, tokens: Sequence[int], entries: PromptLogprobs) -> dict[str, list[Any]]:
        arrays = self._empty()
        for token, entry in zip(tokens, entries, strict=False):
            self._append(arrays, token, entry)
        return arrays

    def of_answer(self, entries: Iterable[TokenLogprobs]) -> dict[str, list[Any]]:
        arrays = self._empty()
        for entry in entries:
            self._append(arrays, entry.token_ids[0], entry)
        return arrays

    def _empty(self) -> dict[str, list[Any]]:
        return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}

    def _append(self, arrays: dict[str, list[Any]], token: int, entry: TokenLogprobs | None) -> None:
        data = self._tokenizer.token_bytes(token)
        spelled = _spell(data, "bytes:")
        arrays["tokens"].append(spelled)
        arrays["text_offset"].append(self._offset)
        self._offset += len(data.decode(errors="ignore"))
        if entry is None:
            arrays["token_logprobs"].append(None)
            arrays["top_logprobs"].append(None)
            return
        arrays["token_logprobs"].append(_finite(entry.logprobs[0]))
        top = {spelled: _finite(entry.logprobs[0])}
        for other, logprob in _best(entry, self._top):
            top.setdefault(_spell(self._tokenizer.token_bytes(other), "bytes:"), _finite(logprob))
        arrays["top_logprobs"].append(top)


def join(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: values + second[name] for name, values in first.items()}


def prompt_entries(tokenizer: Tokenizer, entries: PromptLogprobs) -> list[dict[str, Any] | None]:
    """By token id, because that is what a prompt is; the first token has none."""
    return [
        None
        if entry is None
        else {
            str(token): {
                "logprob": _finite(logprob),
                "rank": rank,
                "decoded_token": _spell(tokenizer.token_bytes(token), ""),
            }
            for token, logprob, rank in zip(entry.token_ids, entry.logprobs, entry.ranks, strict=True)
        }
        for entry in entries
    ]
