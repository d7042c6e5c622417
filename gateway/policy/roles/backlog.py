"""The prompts that one worker is to compute, in the order in which its engine takes them."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Backlog:
    """What is left of each: of those that may be in time, in order of arrival, and then of those that will be late anyway.
    A late one that has begun goes on, as engines give up nothing that they have begun, but shares the steps with the others."""

    _timely: dict[str, int] = field(default_factory=dict)
    _late: dict[str, int] = field(default_factory=dict)
    _begun: str = ""  # of the late ones
    _untold: int = 0  # tokens of prompts that are done, of steps that are still to be told

    def __len__(self) -> int:
        return len(self._timely) + len(self._late)

    @property
    def tokens(self) -> int:
        if not (self._timely or self._late):
            return 0
        return sum(self._timely.values()) + sum(self._late.values())

    @property
    def late(self) -> int:
        """Tokens of those that are late."""
        return sum(self._late.values())

    @property
    def shared(self) -> bool:
        """Whether one that is late stands in the way of others."""
        return bool(self._begun) and any(self._timely.values())

    def ahead(self, tokens: int) -> int:
        """Tokens that are computed before the last of a new prompt of so many, which may be in time."""
        timely = sum(self._timely.values()) if self._timely else 0
        return timely + min(self._late[self._begun], timely + tokens) if self._begun else timely

    def add(self, key: str, tokens: int, *, late: bool = False) -> None:
        (self._late if late else self._timely)[key] = tokens

    def done(self, key: str) -> None:
        """Its first token is there."""
        self._untold += self._pop(key)
        if not self:
            self._untold = 0  # what nobody waits behind need not be told

    def drop(self, key: str) -> None:
        """It will not be computed any further."""
        self._pop(key)

    def computed(self, tokens: int) -> None:
        """Steps have computed so many tokens of prompts."""
        told = min(self._untold, tokens)
        self._untold -= told
        tokens -= told
        if self._begun:
            tokens -= self._take(self._late, self._begun, tokens // 2 if self.shared else tokens)
        for queue in (self._timely, self._late):
            while tokens and (key := next((key for key, left in queue.items() if left), "")):
                tokens -= self._take(queue, key, tokens)

    def _take(self, queue: dict[str, int], key: str, tokens: int) -> int:
        share = min(tokens, queue[key])
        queue[key] -= share
        if queue is self._late:
            self._begun = key if queue[key] else ""
        return share

    def _pop(self, key: str) -> int:
        if key == self._begun:
            self._begun = ""
        return self._timely.pop(key, 0) + self._late.pop(key, 0)
