"""Workers that take no more answers, and still have some: these go on at workers with room, and the worker need not wait for
them (R-26). It drains, was told to end, or does something else now."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from gateway.cluster.cluster import Cluster
from gateway.cluster.states import PairState
from gateway.cluster.worker import Worker
from gateway.policy.admission.drain import AT_ONCE, leave
from gateway.policy.admission.move import Target
from gateway.policy.admission.overrun import Prices
from gateway.request.moving import Order, Why
from gateway.request.observer import Moved
from gateway.request.standing import Growing, Word, answer_of, draws, keen, targets_for, to_empty, word

#: Hand-shakes that are still to come, or under way.
_SOON = (PairState.NEW, PairState.WARMING)


class Emptying:
    """`running`: a worker's answers by name. `leaning`: workers that are to get answers only where no other has room. `full`: not
    to be asked now."""

    def __init__(
        self,
        cluster: Cluster,
        running: Callable[[Worker], Mapping[str, Growing]],
        prices: Callable[[], Prices],
        leaning: Callable[[], Collection[str]],
        full: Callable[[Worker], bool],
    ) -> None:
        self._cluster = cluster
        self._running = running
        self._prices = prices
        self._leaning = leaning
        self._full = full
        self._going: Counter[str] = Counter()  # answers on their way, by the worker that they leave
        self._looked: dict[str, Word] = {}

    def look(self) -> None:
        """Once for each word of a worker that is to be emptied."""
        for worker in self._cluster.workers():
            if to_empty(worker) and self._looked.get(worker.worker_id) != word(worker):
                self._empty(worker)

    def moved(self, moved: Moved) -> None:
        """One of them has arrived, or not: the next may go."""
        self._going[moved.source] -= 1
        source = self._cluster.worker(moved.source)
        if source is not None and to_empty(source):
            self._empty(source)

    def _empty(self, worker: Worker) -> None:
        self._looked[worker.worker_id] = word(worker)
        if self._going[worker.worker_id] >= AT_ONCE:
            return
        others = [one for one in self._cluster.workers() if not self._full(one) and not draws(one)]
        targets = [one for one in targets_for(worker, self._cluster, others) if not self._soon(worker, one)]
        running = dict(self._running(worker))
        for some in keen(targets, self._leaning()):
            answers = [answer_of(each, worker, some) for each in running.values() if each.ways and not each.leaving]
            for action in leave(answers, some, self._prices(), AT_ONCE - self._going[worker.worker_id]):
                for move in action.moves:
                    self._going[worker.worker_id] += 1
                    running.pop(move.request_id).move(Order(Why.DRAIN, move.worker_id, move.by, action.numbers))

    def _soon(self, worker: Worker, target: Target) -> bool:
        """Whether its KV can be read there in a moment: the pair meets only now that there is something to read."""
        if target.bytes_per_s or not worker.info.hands_over:
            return False
        pair = self._cluster.pairs.get(worker.worker_id, target.worker_id)
        return pair is None or pair.state in _SOON
