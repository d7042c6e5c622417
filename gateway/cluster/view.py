"""The cluster as the routing policy sees it, made anew only where something has changed."""

from collections.abc import Iterable, Mapping

from gateway.cluster.worker import Worker
from gateway.policy.prefix import BlockHashes
from gateway.policy.routing import DecodeCandidate, Fleet, Links, PrefillCandidate


class View:
    """Every turn looks at every worker, and between two turns few of them change."""

    def __init__(self) -> None:
        self._fleet = Fleet((), (), {})
        self._ready: list[Worker] = []
        self._seen: list[tuple[int, int]] = []  # version and cached tokens
        self._decodes: list[DecodeCandidate | None] = []
        self._prefills: list[PrefillCandidate | None] = []
        self._closed = False

    def fleet(self, ready: Iterable[Worker], links: Mapping[str, Links], prefix: BlockHashes) -> Fleet:
        """With what each decode worker is believed to have cached of a prompt. The same one while nothing changes."""
        ready = list(ready)
        seen = [(worker.version, _cached(worker, prefix) if worker.prefix else 0) for worker in ready]
        if ready != self._ready:
            self._ready, self._seen = ready, [(-1, 0)] * len(ready)
            self._decodes, self._prefills = [None] * len(ready), [None] * len(ready)
        if seen != self._seen or self._closed or links is not self._fleet.links:
            self._renew(seen)
            decodes = tuple([one for one in self._decodes if one is not None])
            prefills = tuple([one for one in self._prefills if one is not None])
            self._fleet = Fleet(decodes, prefills, links)
            self._closed = any(one.closed for one in decodes)
        return self._fleet

    def _renew(self, seen: list[tuple[int, int]]) -> None:
        for at, (now, before) in enumerate(zip(seen, self._seen, strict=True)):
            decode = self._decodes[at]
            if now != before or (decode is not None and decode.closed):
                worker = self._ready[at]
                self._decodes[at] = worker.as_decode(now[1]) if worker.role.decodes else None
                self._prefills[at] = worker.as_prefill() if worker.role.prefills else None
        self._seen = seen


def _cached(worker: Worker, prefix: BlockHashes) -> int:
    return worker.prefix.cached_tokens(prefix.hashes(worker.info.block_size_tokens))
