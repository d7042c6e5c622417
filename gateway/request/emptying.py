"""Workers that are to be rid of answers (R-26). One takes no more of them, because it drains, was told to end, or does something
else now: these go on at workers with room, and it need not wait for them. One computes prompts for others, and has answers for
which there was no room elsewhere: they go on where there is some now."""

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
from gateway.request.standing import Growing, Word, answer_of, draws, keen, runs, targets_for, to_empty, word

#: Hand-shakes that are still to come, or under way.
_SOON = (PairState.NEW, PairState.WARMING)


class Emptying:
    """`empties`: whether a worker that takes no more answers is rid of those that it has. `running`: a worker's answers by name.
    `leaning`: workers that are to get answers only where no other has room. `full`: not to be asked now."""

    def __init__(
        self,
        cluster: Cluster,
        empties: Callable[[], bool],
        running: Callable[[Worker], Mapping[str, Growing]],
        prices: Callable[[], Prices],
        leaning: Callable[[], Collection[str]],
        full: Callable[[Worker], bool],
    ) -> None:
        self._cluster = cluster
        self._empties = empties
        self._running = running
        self._prices = prices
        self._leaning = leaning
        self._full = full
        self._going: Counter[str] = Counter()  # answers on their way, by the worker that they leave
        self._looked: dict[str, Word] = {}

    def look(self) -> None:
        """Once for each word of a worker that is to be rid of answers."""
        for worker in self._cluster.workers():
            if self._looked.get(worker.worker_id) != word(worker):
                self._look_at(worker)

    def resumed(self, order: Order, source_id: str) -> None:
        """One of them that did not seem to go has left."""
        if order.why in (Why.DRAIN, Why.ROOM):
            self._going[source_id] += 1

    def moved(self, moved: Moved) -> None:
        """One of them has arrived, or not: the next may go."""
        if moved.why not in (Why.DRAIN, Why.ROOM):
            return
        self._going[moved.source] -= 1
        source = self._cluster.worker(moved.source)
        if source is not None:
            self._look_at(source)

    def _look_at(self, worker: Worker) -> None:
        if to_empty(worker):
            if self._empties():
                self._send(worker, Why.DRAIN)
        elif worker.worker_id in self._leaning() and runs(worker) and not self._cluster.queued():
            self._send(worker, Why.ROOM)  # that nobody waits for

    def _send(self, worker: Worker, why: Why) -> None:
        self._looked[worker.worker_id] = word(worker)
        if self._going[worker.worker_id] >= AT_ONCE:
            return
        others = [one for one in self._cluster.workers() if not self._full(one) and not draws(one)]
        targets = [one for one in targets_for(worker, self._cluster, others) if not self._soon(worker, one)]
        running = {name: each for name, each in self._running(worker).items() if why is Why.DRAIN or each.guest}
        for some in keen(targets, self._leaning()):
            answers = [answer_of(each, worker, some) for each in running.values() if each.ways and not each.leaving]
            most, back = AT_ONCE - self._going[worker.worker_id], why is Why.DRAIN
            for action in leave(answers, some, self._prices(), most, back=back):
                for move in action.moves:
                    self._going[worker.worker_id] += 1
                    running.pop(move.request_id).move(Order(why, move.worker_id, move.by, action.numbers))
            if why is Why.ROOM:
                return  # there is none where prompts are computed for others

    def _soon(self, worker: Worker, target: Target) -> bool:
        """Whether its KV can be read there in a moment: the pair meets only now that there is something to read."""
        if target.bytes_per_s or not worker.info.hands_over:
            return False
        pair = self._cluster.pairs.get(worker.worker_id, target.worker_id)
        return pair is None or pair.state in _SOON
