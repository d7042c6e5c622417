"""An answer's text on its way to a client: reasoning first, then content and tool calls."""

from gateway.parsers.calls import CallParser
from gateway.parsers.reasoning import Reasoning
from gateway.parsers.said import Said, joined


class Reader:
    __slots__ = ("_calls", "_reasoning")

    def __init__(self, reasoning: Reasoning | None = None, calls: CallParser | None = None) -> None:
        self._reasoning = reasoning
        self._calls = calls

    @property
    def reasoning_tokens(self) -> int:
        return self._reasoning.tokens.count if self._reasoning else 0

    @property
    def called(self) -> bool:
        return self._calls is not None and self._calls.count > 0

    @property
    def done(self) -> bool:
        """The answer ends here, whatever the model would still say."""
        return self._calls is not None and self._calls.done

    def came(self, text: str) -> None:
        """Of the next token, as the model wrote it: only for counting."""
        if self._reasoning:
            self._reasoning.tokens.push(text)

    def push(self, text: str) -> Said:
        """Text to show."""
        return self._read(self._reasoning.push(text) if self._reasoning else Said(text))

    def flush(self) -> Said:
        if self._reasoning:
            self._reasoning.tokens.flush()
        said = self._read(self._reasoning.flush() if self._reasoning else Said())
        return joined((said, self._calls.flush())) if self._calls else said

    def _read(self, said: Said) -> Said:
        if self._calls is None or not said.content:
            return said
        read = self._calls.push(said.content)
        return Said(read.content, said.reasoning, read.calls)
