"""Reasoning between two marks, apart from the answer that follows it."""

from dataclasses import dataclass
from enum import StrEnum, auto

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

    __slots__ = ("_at", "_end", "_held", "_opened", "_pending", "_start", "tokens")

    def __init__(self, marks: ReasoningMarks, *, opened: bool) -> None:
        self._start, self._end = marks.start, marks.end
        self._opened = opened
        self._at = _At.START
        self._held = ""
        self._pending = 0  # tokens whose text is withheld: the mark's, which do not count, or reasoning
        self.tokens = 0

    def push(self, text: str, tokens: int = 1) -> Said:
        """`tokens` is how many the text is of."""
        if self._at is _At.AFTER:
            return Said(text)
        known = len(self._held)
        buffer, self._held = self._held + text, ""
        if self._at is _At.START:
            bare = buffer.lstrip()
            if bare.startswith(self._start):
                self._at = _At.INSIDE
                rest = bare[len(self._start) :]
                buffer = buffer[: len(buffer) - len(bare)] + rest
                known = self._pending = 0
                tokens = tokens if rest else 0
            elif self._start.startswith(bare):
                self._held = buffer
                self._pending += tokens
                return Said()
            elif self._opened:
                self._at = _At.INSIDE
            else:
                self._at = _At.AFTER
                return Said(buffer)
        return self._inside(buffer, known, tokens)

    def _inside(self, buffer: str, known: int, tokens: int) -> Said:
        """The first `known` characters were withheld before."""
        end = buffer.find(self._end)
        if end >= 0:
            self._at = _At.AFTER
            self._settle(tokens if end > known else 0, said=end > 0)
            return Said(buffer[end + len(self._end) :], buffer[:end])
        keep = begun(buffer, self._end)
        said = buffer[: len(buffer) - keep]
        if keep:
            self._held = buffer[-keep:]
        if said or not keep:
            self._settle(tokens, said=True)
        else:
            self._pending += tokens
        return Said("", said)

    def _settle(self, tokens: int, *, said: bool) -> None:
        """What was withheld was reasoning, or else the mark."""
        self.tokens += tokens + (self._pending if said else 0)
        self._pending = 0

    def flush(self) -> Said:
        """What was withheld, once the answer has ended: no mark came of it."""
        held, self._held = self._held, ""
        if self._at is _At.INSIDE or (self._at is _At.START and self._opened):
            self._settle(0, said=True)
            return Said("", held)
        return Said(held)
