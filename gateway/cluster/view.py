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
        self._renewed: set[int] = set()  # not in the fleet yet
        self._moved = self._recomputed = False  # whether some decode no more, or do; and prefill candidates are others

    def tend(self) -> None:
        """After news: whoever has changed is looked at now, and not while a prompt waits for its place."""
        for at in self._changed:
            self._renew(at, self._caching.get(at, 0))
        self._changed.clear()
        if not self._moved:
            self._put()

    def fleet(self, ready: Iterable[Worker], links: Mapping[str, Links], prefix: BlockHashes) -> Fleet:
        """With what each decode worker is believed to have cached of a prompt. The same one while nothing changes."""
        ready = list(ready)
        others = ready != self._ready  # nobody may be left to say so
        if others:
            self._adopt(ready)
        for at, tokens in self._caching.items():
            if _cached(self._ready[at], prefix) != tokens:
                self._changed.add(at)
        for at in self._changed | self._closed:
            self._renew(at, _cached(self._ready[at], prefix))
        self._changed.clear()
        if others or self._moved or links is not self._fleet.links:
            self._gather(links)
        else:
            self._put()
        return self._fleet

    def _put(self) -> None:
        """Those that were looked at take their places."""
        if self._renewed:
            seats = [(self._seats[at], self._decodes[at]) for at in self._renewed if at in self._seats]
            decodes = {seat: one for seat, one in seats if one is not None}
            self._fleet = self._fleet.but(decodes, self._those_computing() if self._recomputed else None)
            self._renewed.clear()
            self._recomputed = False

    def _gather(self, links: Mapping[str, Links]) -> None:
        decodes = {at: one for at, one in enumerate(self._decodes) if one is not None}
        self._seats = {at: seat for seat, at in enumerate(decodes)}
        self._fleet = Fleet(tuple(decodes.values()), self._those_computing(), links)
        self._renewed.clear()
        self._moved = self._recomputed = False

    def _those_computing(self) -> tuple[PrefillCandidate, ...]:
        return tuple([one for one in self._prefills if one is not None])

    def _adopt(self, ready: list[Worker]) -> None:
        self._ready, self._changed, self._closed, self._renewed = ready, set(range(len(ready))), set(), set()
        self._caching = {at: 0 for at, worker in enumerate(ready) if worker.prefix}
        self._decodes, self._prefills = [None] * len(ready), [None] * len(ready)
        for at, worker in enumerate(ready):
            worker.touched = partial(self._changed.add, at)

    def _renew(self, at: int, cached: int) -> None:
        """`cached`: tokens of a prompt. Of another one it is looked at once more."""
        worker, role = self._ready[at], self._ready[at].role
        if worker.prefix:
            self._caching[at] = cached
        decode = worker.as_decode(cached) if role.decodes else None
        prefill = worker.as_prefill() if role.prefills else None
        self._moved |= (decode is None) != (self._decodes[at] is None)
        self._recomputed |= prefill != self._prefills[at]
        self._decodes[at], self._prefills[at] = decode, prefill
        self._renewed.add(at)
        if decode is not None and decode.closed:
            self._closed.add(at)
        else:
            self._closed.discard(at)


def _cached(worker: Worker, prefix: BlockHashes) -> int:
    known = worker.prefix
    return known.cached_tokens(prefix.hashes(worker.info.block_size_tokens)) if known else 0
