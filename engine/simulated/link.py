"""Transfers that share a link: everyone in flight gets an equal part of the bandwidth."""


class SharedLink:
    """A fluid model, without a clock of its own. `peers` tells how many share the other end of a transfer."""

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._left: dict[str, float] = {}
        self._peers: dict[str, int] = {}
        self._now_s = 0.0

    def __len__(self) -> int:
        return len(self._left)

    def add(self, name: str, size_bytes: float, now_s: float) -> None:
        self.advance(now_s)
        self._left[name] = size_bytes
        self._peers[name] = 1

    def remove(self, name: str, now_s: float) -> None:
        self.advance(now_s)
        self._left.pop(name, None)
        self._peers.pop(name, None)

    def share_with(self, name: str, others: int, now_s: float) -> None:
        """The other end now serves `others` transfers, this one included."""
        if name in self._left:
            self.advance(now_s)
            self._peers[name] = max(1, others)

    def rate(self, name: str) -> float:
        """Bytes a second: the narrower end decides."""
        return self.bytes_per_s / max(len(self._left), self._peers[name])

    def advance(self, now_s: float) -> None:
        elapsed = max(0.0, now_s - self._now_s)
        self._now_s = max(now_s, self._now_s)
        for name in self._left:
            self._left[name] -= elapsed * self.rate(name)

    def left_s(self, name: str, now_s: float) -> float:
        """Seconds until this transfer ends if nothing changes; 0 when it has."""
        self.advance(now_s)
        return max(0.0, self._left[name] / self.rate(name))
