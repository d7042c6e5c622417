"""How many tokens an answer's reasoning is of."""

from gateway.parsers.tags import begun


class ReasoningTokens:
    """Reads the text as the model wrote it: stop strings withhold and cut what is shown, but not what was computed.

    A token counts if some of its text lies between the marks. One without text is part of a character that comes later, or
    a special token that is not shown: it counts where that character does, and right before a mark unless the mark may
    begin with that character.
    """

    __slots__ = ("_begun", "_end", "_ended", "_held", "_inside", "_opened", "_start", "count")

    def __init__(self, start: str, end: str, *, opened: bool) -> None:
        self._start, self._end = start, end
        self._opened = opened
        self._inside = self._ended = False
        self._held = ""  # may be a mark, or white space before one
        self._begun: list[int] = []  # where in it tokens begin, of which it is not known whether they count
        self.count = 0

    def push(self, text: str) -> None:
        """Of the next token."""
        if self._ended:
            return
        if self._inside and text and not self._held and not self._begun and self._end[0] not in text:
            self.count += 1  # as nearly all are
            return
        self._begun.append(len(self._held))
        if text:
            self._held += text
            if self._inside or self._entered():
                self._read()

    def _entered(self) -> bool:
        """Whether the text goes on between the marks, as far as can be said by now."""
        bare = self._held.lstrip()
        if bare.startswith(self._start):
            self._held = bare[len(self._start) :]
            self._begun = [0] if self._held else []
        elif self._start.startswith(bare):
            return False
        elif not self._opened:
            self._ended = True
            return False
        self._inside = True
        return True

    def _read(self) -> None:
        end = self._held.find(self._end)
        if end >= 0:
            self.count += sum([at < end for at in self._begun])
            if self._end[0].isascii():
                self.count += max(0, self._begun.count(end) - 1)  # the last that begins here is the mark's own
            self._ended = True
            return
        known = len(self._held) - begun(self._held, self._end)
        self.count += sum([at < known for at in self._begun])
        self._begun = [at - known for at in self._begun if at >= known]
        self._held = self._held[known:]

    def flush(self) -> None:
        """The answer has ended, and what was held is no mark."""
        if not self._ended and (self._inside or self._opened):
            self.count += len(self._begun)
        self._ended = True
