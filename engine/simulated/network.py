"""Transfers between engines in virtual time: equal shares of whichever end is busier."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Transfer:
    writer: str
    reader: str
    bytes_per_s: float
    left: float


class Network:
    """A fluid model over ports, one a worker. The rule is the one by which engines share links in real time."""

    def __init__(self) -> None:
        self._transfers: dict[str, _Transfer] = {}
        self._load: dict[str, int] = {}
        self._now_s = 0.0

    def __len__(self) -> int:
        return len(self._transfers)

    def __contains__(self, name: str) -> bool:
        return name in self._transfers

    def add(self, name: str, writer: str, reader: str, size_bytes: float, bytes_per_s: float, now_s: float) -> None:
        self._advance(now_s)
        self._transfers[name] = _Transfer(writer, reader, bytes_per_s, size_bytes)
        for port in (writer, reader):
            self._load[port] = self._load.get(port, 0) + 1

    def remove(self, name: str, now_s: float) -> None:
        self._advance(now_s)
        transfer = self._transfers.pop(name)
        for port in (transfer.writer, transfer.reader):
            self._load[port] -= 1

    def next(self) -> tuple[float, str] | None:
        """When the first transfer ends if nothing changes, and which."""
        ends = [(self._now_s + max(0.0, t.left) / self._rate(t), name) for name, t in self._transfers.items()]
        return min(ends, default=None)

    def _rate(self, transfer: _Transfer) -> float:
        return transfer.bytes_per_s / max(self._load[transfer.writer], self._load[transfer.reader])

    def _advance(self, now_s: float) -> None:
        for transfer in self._transfers.values():
            transfer.left -= (now_s - self._now_s) * self._rate(transfer)
        self._now_s = now_s
