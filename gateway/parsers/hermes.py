"""`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes, Qwen2.5, Qwen3 and many others."""

from gateway.parsers.calls import At, Calls
from gateway.parsers.tags import begun

START, END = "<tool_call>", "</tool_call>"


class Hermes(Calls):
    """Calls may stand anywhere in the answer, with text around them."""

    def _outside(self) -> bool:
        before, mark, rest = self._buffer.partition(START)
        if mark:
            self._say(before)
            return self._enter(START, rest)
        keep = begun(self._buffer, START)
        cut = len(self._buffer) - keep
        self._say(self._buffer[:cut])
        self._buffer = self._buffer[cut:]
        return False

    def _whole(self) -> bool:
        body, mark, rest = self._buffer.partition(END)
        if not mark:
            return False
        self._buffer, self._at = rest, At.OUTSIDE
        if self._read_whole(body, END):
            self.done = self._single
        return True

    def _between(self) -> bool:
        bare = self._buffer.lstrip()
        if bare.startswith(END):
            self._buffer = bare.removeprefix(END)
        elif END.startswith(bare):
            return False
        self._at = At.OUTSIDE
        return True
