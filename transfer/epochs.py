"""Which epoch of each writer is the newest that this reader has shaken hands with."""

#: A worker that restarts more often than this has other problems.
_REMEMBERED = 32


class Epochs:
    """Epochs are opaque, so "newest" is "seen last for the first time": a late hand-shake of a gateway that has
    not heard of a restart yet does not bring an old epoch back.
    """

    def __init__(self) -> None:
        self._seen: dict[str, list[str]] = {}

    def learn(self, worker_id: str, epoch: str) -> None:
        seen = self._seen.setdefault(worker_id, [])
        if epoch not in seen:
            seen.append(epoch)
            del seen[:-_REMEMBERED]

    def newest(self, worker_id: str, epoch: str) -> str | None:
        """The epoch that makes `epoch` void, if one is known; an epoch never seen is given the benefit of the doubt."""
        seen = self._seen.get(worker_id, [])
        return seen[-1] if epoch in seen else None
