"""Calls as bare JSON, which are the whole answer."""

from collections.abc import Collection

from gateway.parsers.calls import At, Calls


class JsonCalls(Calls):
    """`opening`, which may be missing, then an object a call with one of `separators` between them.

    An answer that begins otherwise has no calls; behind what is no call none is looked for.
    """

    def __init__(
        self, names: Collection[str], *, opening: str, separators: str, closing: str = "", single: bool
    ) -> None:
        super().__init__(names, single=single)
        self._opening = opening
        self._separators = separators
        self._closing = closing

    def _outside(self) -> bool:
        bare = self._buffer.lstrip()
        rest = bare.removeprefix(self._opening).lstrip()
        if rest.startswith("{"):
            space = self._buffer[: len(self._buffer) - len(bare)]
            self._say(space)
            return self._enter(bare[: len(bare) - len(rest)], rest)
        if not rest or self._opening.startswith(bare):
            return False
        return self._talk_on()

    def _whole(self) -> bool:
        end = self._object_end()
        if end < 0:
            return False
        body, self._buffer = self._buffer[:end], self._buffer[end:]
        if self._read_whole(body, ""):
            self._ended()
            return True
        return self._talk_on()

    def _between(self) -> bool:
        bare = self._buffer.lstrip()
        if not bare:
            return False
        if self._closing and bare.startswith(self._closing):
            self._buffer = bare.removeprefix(self._closing)
            return self._talk_on()
        rest = bare[1:].lstrip() if bare[0] in self._separators else bare
        if rest.startswith("{"):
            return self._enter(self._buffer[: len(self._buffer) - len(rest)], rest)
        return bool(rest) and self._talk_on()

    def _talk_on(self) -> bool:
        self._at = At.TALK
        return True
