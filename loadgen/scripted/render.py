"""Bytes of the scripted target's answers."""

from typing import Any

import orjson

from loadgen.scripted.script import Act, Beat, Script

_TEXT = " word"


class Renderer:
    """Writes one stream in the form its request asked for."""

    def __init__(self, body: dict[str, Any], chat: bool, prompt_tokens: int, *, running_usage: bool) -> None:
        options = body.get("stream_options") or {}
        self._chat = chat
        self._prompt_tokens = prompt_tokens
        self._usage = bool(options.get("include_usage"))
        self._running = running_usage and bool(options.get("continuous_usage_stats"))
        self._model = body.get("model", "")
        self._counted = 0

    def beat(self, beat: Beat, script: Script) -> bytes:
        self._counted += beat.tokens
        match beat.act:
            case Act.ROLE:
                return self._chunk({"role": "assistant", "content": ""}, "") if self._chat else b""
            case Act.CONTENT:
                return self._chunk({"content": _TEXT * beat.tokens}, _TEXT * beat.tokens)
            case Act.EMPTY:
                return self._chunk({"content": ""}, "")
            case Act.ERROR:
                return _event({"error": {"message": "scripted", "type": "server_error", "code": script.code or "boom"}})
            case Act.FINISH:
                end = self._chunk({}, "", finish="length")
                closing = _event({**self._frame(), "choices": [], "usage": self._counts()}) if self._usage else b""
                return end + closing + b"data: [DONE]\n\n"
            case _:
                return b""

    def _frame(self) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return {"id": "scripted", "object": kind, "created": 0, "model": self._model}

    def _chunk(self, delta: dict[str, str], text: str, finish: str | None = None) -> bytes:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        choice |= {"delta": delta} if self._chat else {"text": text}
        chunk = {**self._frame(), "choices": [choice]}
        if self._running:
            chunk["usage"] = self._counts()
        return _event(chunk)

    def _counts(self) -> dict[str, int]:
        total = self._prompt_tokens + self._counted
        return {"prompt_tokens": self._prompt_tokens, "completion_tokens": self._counted, "total_tokens": total}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def response(status: int, data: Any, *, content_type: str = "application/json", keep: bool = True) -> bytes:
    """A whole plain response."""
    payload = data if isinstance(data, bytes) else orjson.dumps(data)
    head = (
        f"HTTP/1.1 {status} Scripted\r\ncontent-type: {content_type}\r\ncontent-length: {len(payload)}\r\n"
        f"connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    )
    return head.encode() + payload


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    b"connection: keep-alive\r\n\r\n"
)
STREAM_END = b"0\r\n\r\n"


def framed(data: bytes) -> bytes:
    """HTTP chunked framing."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
