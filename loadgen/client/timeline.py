"""What came when, in one answer. Pure: bytes and times in, figures out."""

from array import array
from dataclasses import dataclass
from typing import Any

import orjson

from loadgen.client.sse import EventReader
from loadgen.client.stages import stages_of

_ANSWER_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Aligned: when content came and how many tokens came with it. `source`: see `Result.tokens_from`."""

    chunk_s: "array[float]"
    chunk_tokens: "array[int]"
    total: int
    source: str


class Timeline:
    """Collects one streamed answer of either OpenAI surface."""

    def __init__(self) -> None:
        self._events = EventReader()
        self._plain = bytearray()
        self._is_stream = False
        self._times = array("d")
        self._sizes = array("L")
        self._counts = array("L")
        self._counted = 0
        self._continuous = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.first_s: float | None = None
        self.finish_s: float | None = None
        self.complete_s: float | None = None
        self.finish = ""
        self.done = False
        self.error: dict[str, Any] | None = None
        self.usage: dict[str, Any] = {}
        self.stages: dict[str, float] = {}
        self.text: list[str] | None = None

    @property
    def chunks(self) -> int:
        return len(self._times)

    @property
    def tokens_so_far(self) -> int:
        return max(self._counted, len(self._times))

    # Sink

    def head(self, status: int, headers: dict[str, str], at_s: float) -> None:
        self.status, self.headers = status, headers
        self._is_stream = status == 200 and "text/event-stream" in headers.get("content-type", "")

    def body(self, data: bytes, at_s: float) -> None:
        if not self._is_stream:
            self._plain += data
            return
        for event in self._events.feed(data):
            self._take(event, at_s)

    def complete(self, at_s: float) -> None:
        self.complete_s = at_s

    def end(self, at_s: float) -> None:
        """The response is over; what is left in the buffers counts."""
        if self._is_stream:
            for event in self._events.end():
                self._take(event, at_s)
        elif self._plain:
            self._take_plain(bytes(self._plain))

    def _take(self, event: bytes, at_s: float) -> None:
        if event == b"[DONE]":
            self.done = True
            return
        try:
            data = orjson.loads(event)
        except orjson.JSONDecodeError:
            self.error = {"code": "malformed_event", "message": event[:200].decode("utf-8", "replace")}
            return
        if not isinstance(data, dict):
            return
        if data.get("error"):
            self.error = _error_object(data["error"])
            return
        usage = data.get("usage")
        choices = data.get("choices")
        if usage:
            self.usage = usage
        if "tandem" in data:
            self.stages = stages_of(data["tandem"])
        if choices:
            self._take_choice(choices[0], usage, at_s)

    def _take_choice(self, choice: dict[str, Any], usage: dict[str, Any] | None, at_s: float) -> None:
        text = _content(choice)
        finish = choice.get("finish_reason")
        fresh = None
        if usage and usage.get("completion_tokens") is not None:
            # never negative: a first chunk that the target counted as 0 tokens was taken as 1
            fresh = max(0, int(usage["completion_tokens"]) - self._counted)
            self._continuous = True
        if text:
            self._record(at_s, len(text), fresh)
            if self.text is not None:
                self.text.append(text)
        elif finish and fresh and self.first_s is not None:
            # the end token: it came, though it has no text
            self._record(at_s, 0, fresh)
        if finish:
            self.finish, self.finish_s = finish, at_s

    def _record(self, at_s: float, size: int, fresh: int | None) -> None:
        if self.first_s is None:
            self.first_s = at_s
            fresh = None if fresh is None else max(1, fresh)
        if fresh == 0:
            # a second piece of text of a token that came already
            return
        self._times.append(at_s)
        self._sizes.append(size)
        self._counts.append(fresh or 0)
        self._counted += fresh or 0

    def _take_plain(self, body: bytes) -> None:
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError:
            self.error = {"message": body[:200].decode("utf-8", "replace")}
            return
        if isinstance(data, dict) and data.get("error"):
            self.error = _error_object(data["error"])
        elif isinstance(data, dict) and data.get("object") == "error":
            self.error = _error_object(data)
        elif self.status != 200:
            self.error = {"message": str(data)[:200]}

    # figures

    def tokens(self) -> Tokens:
        total = int(self.usage.get("completion_tokens") or 0)
        times, chunks = self._times, len(self._times)
        if not chunks:
            return Tokens(times, self._counts, total, "")
        if self._continuous:
            counts = array("L", self._counts)
            counts[-1] += max(0, total - self._counted)
            return Tokens(times, counts, max(total, self._counted), "continuous")
        if total in (0, chunks):
            return Tokens(times, array("L", [1]) * chunks, chunks, "chunks" if total else "assumed")
        if total == chunks + 1 and self.finish == "stop" and self.finish_s is not None:
            return Tokens(array("d", [*times, self.finish_s]), array("L", [1]) * (chunks + 1), total, "chunks")
        return self._spread(total)

    def _spread(self, total: int) -> Tokens:
        """Shares out a total by length of text; every chunk gets one token where there are enough."""
        chunks = len(self._times)
        if total < chunks:
            return Tokens(self._times[:total], array("L", [1]) * total, total, "spread")
        counts = [1] * chunks
        weights = [max(1, size) for size in self._sizes]
        extra, whole = total - chunks, sum(weights)
        shares = [extra * w / whole for w in weights]
        counts = [1 + int(share) for share in shares]
        by_rest = sorted(range(chunks), key=lambda i: shares[i] - int(shares[i]), reverse=True)
        for i in by_rest[: total - sum(counts)]:
            counts[i] += 1
        return Tokens(self._times, array("L", counts), total, "spread")

    def cached_tokens(self) -> int:
        details = self.usage.get("prompt_tokens_details") or {}
        return int(details.get("cached_tokens") or 0)


def _content(choice: dict[str, Any]) -> str:
    """Whatever of an answer the client can use: text, reasoning or a tool delta; a role alone is none (B-67)."""
    delta = choice.get("delta")
    if delta is None:
        return choice.get("text") or ""
    for name in _ANSWER_FIELDS:
        if delta.get(name):
            return str(delta[name])
    calls = delta.get("tool_calls")
    return orjson.dumps(calls).decode() if calls else ""


def _error_object(error: Any) -> dict[str, Any]:
    return error if isinstance(error, dict) else {"message": str(error)}
