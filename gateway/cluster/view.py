"""The cluster as the routing policy sees it, made anew only where something has changed."""

from collections.abc import Iterable, Mapping
from functools import partial

from gateway.cluster.worker import Worker
from gateway.policy.prefix import BlockHashes
from gateway.policy.routing import DecodeCandidate, Fleet, Links, PrefillCandidate


class View:
    """Every turn looks at all workers, and between two turns few of them change. Those say so (`Worker.touched`).

    Workers go by their place in `ready`. One whose door is closed is looked at each time: it opens by itself.
    """

    def __init__(self) -> None:
        self._fleet = Fleet((), (), {})
        self._ready: list[Worker] = []
        self._changed: set[int] = set()
        self._closed: set[int] = set()
        self._caching: dict[int, int] = {}  # of those that may have something cached: tokens of the last prompt
        self._decodes: list[DecodeCandidate | None] = []
        self._prefills: list[PrefillCandidate | None] = []
        self._seats: dict[int, int] = {}  # the place in the fleet of each that decodes

    def fleet(self, ready: Iterable[Worker], links: Mapping[str, Links], prefix: BlockHashes) -> Fleet:
        """With what each decode worker is believed to have cached of a prompt. The same one while nothing changes."""
        ready = list(ready)
        others = ready != self._ready  # nobody may be left to say so
        if others:
            self._adopt(ready)
        for at, tokens in self._caching.items():
            if _cached(self._ready[at], prefix) != tokens:
                self._changed.add(at)
        if others or self._changed or self._closed or links is not self._fleet.links:
            places, computing = self._changed | self._closed, self._prefills.copy()
            seated = [self._renew(at, prefix) for at in places]
            self._changed.clear()
            if others or links is not self._fleet.links or False in seated:
                self._gather(links)
            else:
                seats = [(self._seats[at], self._decodes[at]) for at in places if at in self._seats]
                decodes = {seat: one for seat, one in seats if one is not None}
                self._fleet = self._fleet.but(decodes, None if self._prefills == computing else self._those_computing())
        return self._fleet

    def _gather(self, links: Mapping[str, Links]) -> None:
        decodes = {at: one for at, one in enumerate(self._decodes) if one is not None}
        self._seats = {at: seat for seat, at in enumerate(decodes)}
        self._fleet = Fleet(tuple(decodes.values()), self._those_computing(), links)

    def _those_computing(self) -> tuple[PrefillCandidate, ...]:
        return tuple([one for one in self._prefills if one is not None])

    def _adopt(self, ready: list[Worker]) -> None:
        self._ready, self._changed, self._closed = ready, set(range(len(ready))), set()
        self._caching = {at: 0 for at, worker in enumerate(ready) if worker.prefix}
        self._decodes, self._prefills = [None] * len(ready), [None] * len(ready)
        for at, worker in enumerate(ready):
            worker.touched = partial(self._changed.add, at)

    def _renew(self, at: int, prefix: BlockHashes) -> bool:
        """Whether it has kept its seat, or has none as before."""
        worker, before = self._ready[at], self._decodes[at]
        cached = 0
        if worker.prefix:
            self._caching[at] = cached = _cached(worker, prefix)
        decode = worker.as_decode(cached) if worker.role.decodes else None
        self._decodes[at] = decode
        self._prefills[at] = worker.as_prefill() if worker.role.prefills else None
        if decode is not None and decode.closed:
            self._closed.add(at)
        else:
            self._closed.discard(at)
        return (decode is None) == (before is None)


def _cached(worker: Worker, prefix: BlockHashes) -> int:
    return worker.prefix.cached_tokens(prefix.hashes(worker.info.block_size_tokens))
