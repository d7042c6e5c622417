"""Incremental detokenizing, byte-exact for characters that span tokens."""

from codecs import utf_8_decode
from collections.abc import Callable, Mapping, Sequence

#: How much of the prompt a context-dependent decoder sees before the answer.
CONTEXT_TOKENS = 8


class ByteDetokenizer:
    """For vocabularies whose tokens are plain bytes: a table and a UTF-8 decoder that keeps unfinished characters."""

    __slots__ = ("_rest", "_table")

    def __init__(self, table: Mapping[int, bytes]) -> None:
        self._table = table
        self._rest = b""

    def push(self, tokens: Sequence[int]) -> str:
        table = self._table
        data = table[tokens[0]] if len(tokens) == 1 else b"".join([table[token] for token in tokens])
        if self._rest:
            data = self._rest + data
        text, used = utf_8_decode(data, "replace", False)
        self._rest = data[used:]
        return text

    def flush(self) -> str:
        rest, self._rest = self._rest, b""
        return utf_8_decode(rest, "replace", True)[0] if rest else ""


class ContextDetokenizer:
    """For any other decoder: decodes a short window with and without the new tokens and takes the difference.

    The window begins with the tokens of the last certain text, so that a decoder which looks at neighbours
    (spaces, word pieces) sees the same ones every time.
    """

    __slots__ = ("_before", "_certain", "_decode", "_window")

    def __init__(self, decode: Callable[[list[int]], str], context: Sequence[int] = ()) -> None:
        self._decode = decode
        self._window = list(context[-CONTEXT_TOKENS:])
        self._certain = len(self._window)
        self._before = len(decode(self._window)) if self._window else 0

    def push(self, tokens: Sequence[int]) -> str:
        return "".join([self._step(token) for token in tokens])

    def _step(self, token: int) -> str:
        self._window.append(token)
        text = self._decode(self._window)[self._before :]
        if not text or text.endswith("\ufffd"):
            return ""
        self._advance()
        return text

    def _advance(self) -> None:
        del self._window[: self._certain]
        self._certain = len(self._window)
        self._before = len(self._decode(self._window))

    def flush(self) -> str:
        if self._certain == len(self._window):
            return ""
        text = self._decode(self._window)[self._before :]
        self._advance()
        return text
