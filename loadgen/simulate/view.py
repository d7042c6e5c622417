"""The fleet as the gateway's routing sees it, made anew only where something has changed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from gateway.policy.prefix import BlockHashes
from gateway.policy.routing import DecodeCandidate, Fleet, Links, PrefillCandidate
from loadgen.simulate.worker import SimWorker


class View:
    """Every turn looks at all workers, and between two turns few of them change; those say so (`SimWorker.touched`).

    One whose door is closed is looked at each time: it opens by itself.
    """

    def __init__(self, links: Mapping[str, Links]) -> None:
        self._links = links
        self._decodes: dict[SimWorker, int] = {}  # and the place of each in the fleet
        self._prefills: dict[SimWorker, int] = {}
        self._touched: dict[SimWorker, None] = {}
        self._closed: dict[SimWorker, None] = {}
        self._sizes: frozenset[int] = frozenset()  # tokens of a block, as they occur
        self._others = False
        self._fleet = Fleet((), (), links)  # nothing cached anywhere

    def adopt(self, up: list[SimWorker]) -> None:
        """Others are up than before, or some have another role."""
        self._decodes = {worker: at for at, worker in enumerate(worker for worker in up if worker.role.decodes)}
        self._prefills = {worker: at for at, worker in enumerate(worker for worker in up if worker.role.prefills)}
        self._sizes = frozenset(worker.pool.limits.block_size for worker in self._decodes)
        self._others = True
        for worker in up:
            worker.touched = partial(self._touched.setdefault, worker, None)

    @property
    def stale(self) -> list[SimWorker]:
        """Those that have said how they are, where nobody has looked since."""
        heard = self._decodes if self._others else [worker for worker in self._touched if worker in self._decodes]
        return [worker for worker in heard if worker.stale]

    def fleet(self, prefix: BlockHashes, now_s: float) -> Fleet:
        """With what each decode worker is believed to have cached of the prompt. The same one while nothing changes."""
        if self._others:
            self._gather(now_s)
        elif self._touched or self._closed:
            self._renew(now_s)
        if not any(prefix.hashes(size) for size in self._sizes):
            return self._fleet
        cached = {at: tokens for worker, at in self._decodes.items() if (tokens := worker.cached_tokens(prefix))}
        if not cached:
            return self._fleet
        decodes = self._fleet.decodes
        return self._fleet.but({at: replace(decodes[at], cached_tokens=tokens) for at, tokens in cached.items()})

    def _gather(self, now_s: float) -> None:
        decodes = tuple([worker.as_decode(now_s) for worker in self._decodes])
        self._fleet = Fleet(decodes, tuple([worker.as_prefill() for worker in self._prefills]), self._links)
        self._closed = {worker: None for worker, one in zip(self._decodes, decodes, strict=True) if one.closed}
        self._touched.clear()
        self._others = False

    def _renew(self, now_s: float) -> None:
        known, changed, computing = self._fleet, dict[int, DecodeCandidate](), dict[int, PrefillCandidate]()
        for worker in (*self._touched, *self._closed):
            at = self._prefills.get(worker)
            if at is not None and not worker.says(known.prefills[at]):
                computing[at] = worker.as_prefill()
            at = self._decodes.get(worker)
            if at is None:
                continue
            one = worker.as_decode(now_s)
            if one != known.decodes[at]:
                changed[at] = one
            if one.closed:
                self._closed[worker] = None
            elif worker in self._closed:
                del self._closed[worker]
        self._touched.clear()
        if changed or computing:
            self._fleet = known.but(changed, _with(known.prefills, computing) if computing else None)


def _with(known: Sequence[PrefillCandidate], others: Mapping[int, PrefillCandidate]) -> tuple[PrefillCandidate, ...]:
    return tuple([others.get(at, one) for at, one in enumerate(known)])
