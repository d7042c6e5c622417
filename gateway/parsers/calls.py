"""Tool calls in an answer's text: what every way of writing them has in common."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from enum import StrEnum, auto
from typing import Protocol

from gateway.parsers.call_json import Braces, NoCallError, header, whole
from gateway.parsers.said import CallDelta, Said


class CallParser(Protocol):
    """The parts depend on the text alone, not on how it was cut into pieces."""

    @property
    def count(self) -> int:
        """Calls that have begun."""
        ...

    @property
    def done(self) -> bool:
        """The answer may end here: no further call is wanted."""
        ...

    def push(self, text: str) -> Said: ...

    def flush(self) -> Said: ...


class At(StrEnum):
    OUTSIDE = auto()
    HEADER = auto()
    ARGUMENTS = auto()
    CLOSE = auto()  # before the call's own brace
    BETWEEN = auto()  # after a call
    WHOLE = auto()  # in what does not begin as calls do, and may be one all the same
    TALK = auto()  # where no call can come any more


class Calls(ABC):
    """Steps over a buffer, each of which takes something out of it, or waits for more.

    A call is told as soon as its name is known and its arguments begin; these are passed on as the model writes them.
    What turns out to be no call before that is content, with its marks. White space that only sets calls apart is
    dropped.
    """

    def __init__(self, names: Collection[str], *, single: bool = False) -> None:
        self._names = names
        self._single = single
        self.count = 0
        self.done = False
        self._buffer = ""
        self._lead = ""  # the mark before the call at hand, in case it is none
        self._space = ""  # white space since the beginning or the last call, while nothing has been said
        self._fresh = True
        self._braces = Braces()
        self._scanned = 0  # characters of the buffer that the braces have seen
        self._at = At.OUTSIDE
        self._content: list[str] = []
        self._deltas: list[CallDelta] = []

    @abstractmethod
    def _outside(self) -> bool:
        """Looks for a call. Steps return whether there is more to do with what is in the buffer."""

    @abstractmethod
    def _whole(self) -> bool:
        """Waits for the end of what may be a call, for `_read_whole` to decide."""

    @abstractmethod
    def _between(self) -> bool: ...

    def push(self, text: str) -> Said:
        self._buffer += text
        while not self.done and self._step():
            pass
        return self._taken()

    def flush(self) -> Said:
        """What was withheld, once the answer has ended."""
        if self._at in (At.HEADER, At.WHOLE):
            self._read_whole(self._buffer, "")
        elif self._at is At.OUTSIDE:
            self._say(self._buffer)
        if not self.count:
            self._content.append(self._space)
        self._buffer = self._space = ""
        return self._taken()

    def _step(self) -> bool:
        match self._at:
            case At.OUTSIDE:
                return self._outside()
            case At.HEADER:
                return self._header()
            case At.ARGUMENTS:
                return self._arguments()
            case At.CLOSE:
                return self._close()
            case At.BETWEEN:
                return self._between()
            case At.WHOLE:
                return self._whole()
            case At.TALK:
                self._say(self._buffer)
                self._buffer = ""
                return False

    def _taken(self) -> Said:
        said = Said("".join(self._content), "", tuple(self._deltas))
        self._content.clear()
        self._deltas.clear()
        return said

    def _enter(self, lead: str, rest: str) -> bool:
        self._lead, self._buffer, self._at = lead, rest, At.HEADER
        return True

    def _header(self) -> bool:
        try:
            found = header(self._buffer, self._names)
        except NoCallError:
            self._at = At.WHOLE
            self._braces, self._scanned = Braces(), 0
            return True
        if found is None:
            return False
        self._begin(found.name)
        self._buffer = self._buffer[found.end :]
        self._at = At.ARGUMENTS
        self._braces, self._scanned = Braces(), 0
        return True

    def _begin(self, name: str, arguments: str = "") -> None:
        self._space, self._fresh = "", True
        self._deltas.append(CallDelta(self.count, name, arguments))
        self.count += 1

    def _arguments(self) -> bool:
        end = self._object_end()
        part = self._buffer if end < 0 else self._buffer[:end]
        if part:
            self._deltas.append(CallDelta(self.count - 1, arguments=part))
        self._buffer, self._scanned = self._buffer[len(part) :], 0
        if end < 0:
            return False
        self._at = At.CLOSE
        return True

    def _object_end(self) -> int:
        """Where the object that the buffer begins with ends, or -1."""
        end = self._braces.end(self._buffer[self._scanned :])
        if end < 0:
            self._scanned = len(self._buffer)
            return -1
        return self._scanned + end

    def _close(self) -> bool:
        """The call's own brace, which models forget."""
        bare = self._buffer.lstrip()
        if not bare:
            return False
        self._buffer = bare.removeprefix("}")
        self._ended()
        return True

    def _ended(self) -> None:
        self._at = At.BETWEEN
        self.done = self._single

    def _read_whole(self, body: str, tail: str) -> bool:
        """`tail` is the mark after it. Whether it was a call."""
        call = whole(body, self._names)
        if call is None:
            self._say(self._lead + body + tail)
            return False
        self._begin(*call)
        return True

    def _say(self, text: str) -> None:
        if self._fresh and not text.strip():
            self._space += text
        elif text:
            self._content.append(self._space + text)
            self._space, self._fresh = "", False
