"""Reasoning between two marks, apart from the answer that follows it."""

from dataclasses import dataclass
from enum import StrEnum, auto

from gateway.parsers.reasoning_tokens import ReasoningTokens
from gateway.parsers.said import Said
from gateway.parsers.tags import begun


class ReasoningParser(StrEnum):
    """How an answer begins where the prompt does not end with either mark."""

    THINK = "think"  # with the answer, unless the model writes the start mark first
    DEEPSEEK_R1 = "deepseek_r1"  # inside of the block: the model may leave out the start mark


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    parser: ReasoningParser
    start: str
    end: str

    def opened(self, prompt: str) -> bool:
        """Whether an answer to this prompt begins inside of the block.

        Templates open the block for the model, or open and close it where thinking is switched off. Only the very end
        counts: before it are the client's own words.
        """
        prompt = prompt.rstrip()
        if prompt.endswith(self.start):
            return True
        return self.parser is ReasoningParser.DEEPSEEK_R1 and not prompt.endswith(self.end)


class _At(StrEnum):
    START = auto()  # nothing but white space so far: the start mark may come
    INSIDE = auto()
    AFTER = auto()


class Reasoning:
    """One answer's split. The parts depend on the text alone, not on how it was cut into pieces.

    There is one block, at the beginning; a mark further on is the model's talk about marks. Without the two marks,
    reasoning and content are the text, white space included. What is withheld is what may be a mark.
    """

    __slots__ = ("_at", "_end", "_held", "_opened", "_start", "tokens")

    def __init__(self, marks: ReasoningMarks, *, opened: bool) -> None:
        self._start, self._end = marks.start, marks.end
        self._opened = opened
        self._at = _At.START
        self._held = ""
        self.tokens = ReasoningTokens(marks.start, marks.end, opened=opened)

    def push(self, text: str) -> Said:
        if self._at is _At.AFTER:
            return Said(text)
        buffer, self._held = self._held + text, ""
        if self._at is _At.START:
            bare = buffer.lstrip()
            if bare.startswith(self._start):
                self._at = _At.INSIDE
                buffer = buffer[: len(buffer) - len(bare)] + bare[len(self._start) :]
            elif self._start.startswith(bare):
                self._held = buffer
                return Said()
            elif self._opened:
                self._at = _At.INSIDE
            else:
                self._at = _At.AFTER
                return Said(buffer)
        return self._inside(buffer)

    def _inside(self, buffer: str) -> Said:
        end = buffer.find(self._end)
        if end >= 0:
            self._at = _At.AFTER
            return Said(buffer[end + len(self._end) :], buffer[:end])
        keep = begun(buffer, self._end)
        if keep:
            self._held = buffer[-keep:]
        return Said("", buffer[: len(buffer) - keep])

    def flush(self) -> Said:
        """What was withheld, once the answer has ended: no mark came of it."""
        held, self._held = self._held, ""
        if self._at is _At.INSIDE or (self._at is _At.START and self._opened):
            return Said("", held)
        return Said(held)
