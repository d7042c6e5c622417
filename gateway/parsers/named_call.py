"""The one call that a client asked for by its name: the answer is its arguments."""

from gateway.parsers.said import CallDelta, Said


class NamedCall:
    __slots__ = ("_name", "count")

    def __init__(self, name: str) -> None:
        self._name = name
        self.count = 0

    @property
    def done(self) -> bool:
        """Its grammar ends it."""
        return False

    def push(self, text: str) -> Said:
        if not text:
            return Said()
        name = "" if self.count else self._name
        self.count = 1
        return Said(calls=(CallDelta(0, name, text),))

    def flush(self) -> Said:
        return Said()
