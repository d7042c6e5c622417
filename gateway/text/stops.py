"""Stop strings over a stream of text, across tokens and legs."""


class StopMatcher:
    """Lets text through as soon as no part of it can belong to a stop string any more.

    What is withheld is always the longest tail that begins some stop string, so no client ever sees a
    piece of one. The match that ends first wins, then the longer one: the outcome depends on the text
    alone and not on how it was split.
    """

    __slots__ = ("_held", "_include", "_longest", "_starts", "_stops", "matched")

    def __init__(self, stops: tuple[str, ...], *, include: bool = False) -> None:
        self._stops = tuple(dict.fromkeys(stops))
        self._include = include
        self._longest = max(map(len, self._stops))
        self._starts = frozenset(stop[0] for stop in self._stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str, *, armed: bool = True) -> str:
        """Text to show. Unarmed (before `min_tokens`), a stop string that is completed here does not count."""
        known = len(self._held)
        buffer = self._held + text
        found = self._find(buffer, known) if armed else None
        if found is not None:
            end, stop = found
            self.matched = stop
            self._held = ""
            return buffer[: end if self._include else end - len(stop)]
        keep = self._tail(buffer)
        self._held = buffer[len(buffer) - keep :] if keep else ""
        return buffer[: len(buffer) - keep] if keep else buffer

    def flush(self) -> str:
        """What was withheld, once the answer has ended without a match."""
        held, self._held = self._held, ""
        return held

    def _find(self, buffer: str, known: int) -> tuple[int, str] | None:
        best: tuple[int, str] | None = None
        for stop in self._stops:
            at = buffer.find(stop, max(0, known - len(stop) + 1))
            if at < 0:
                continue
            end = at + len(stop)
            if best is None or end < best[0] or (end == best[0] and len(stop) > len(best[1])):
                best = (end, stop)
        return best

    def _tail(self, buffer: str) -> int:
        for begin in range(max(0, len(buffer) - self._longest + 1), len(buffer)):
            if buffer[begin] in self._starts:
                tail = buffer[begin:]
                if any(len(tail) < len(stop) and stop.startswith(tail) for stop in self._stops):
                    return len(tail)
        return 0
