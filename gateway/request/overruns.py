"""Running answers that yield because more KV grew than was promised, as their class allows (R-08), and those that leave a full
worker for one that has room, or one that takes no more of them (R-26).

The workers' emergency pools, and their refusals while those are in use, are the milder responses and need nothing here.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from gateway.cluster.cluster import Cluster
from gateway.cluster.worker import Worker
from gateway.policy.admission.balance import Balance, Standing, even_out, full_ones
from gateway.policy.admission.overrun import Action, OverrunPolicy, Prices, Response, decide
from gateway.policy.control.controller import Controller
from gateway.policy.control.rows import MoveRow
from gateway.policy.prefill_choice import ASSUMED_PREFILL_TOKENS_PER_S
from gateway.request.emptying import Emptying
from gateway.request.moving import Order, Outcome, Why
from gateway.request.observer import Moved
from gateway.request.standing import (
    Growing,
    Word,
    answer_of,
    fills,
    growth_blocks,
    keen,
    pressure,
    standing,
    targets_for,
    to_empty,
    word,
)


class Source(Protocol):
    """One prompt's running answers."""

    def growing(self) -> Iterator[Growing]: ...


def _nobody() -> Collection[str]:
    return ()


class Overruns:
    """Looks whenever a worker has news, and tells the length model what is under way; nothing yields where no class may, and
    nothing is evened out where the policy does not say so. `leaning`: workers that fluid roles have compute prompts for others:
    they get answers only where no other has room, and none to even things out."""

    def __init__(
        self, cluster: Cluster, controller: Controller, leaning: Callable[[], Collection[str]] = _nobody
    ) -> None:
        self._cluster = cluster
        self._controller = controller
        self._leaning = leaning
        self._sources: set[Source] = set()
        self._looked: dict[str, Word] = {}  # worker -> the state that was looked at for a shortage
        self._evened: dict[str, Word] = {}  # and as one that is full, or got an answer
        self._refused: dict[str, Word] = {}  # workers that had no room for an answer, by what they had said before
        self._emptying = Emptying(
            cluster, lambda: controller.empties, self._running, lambda: self._prices, leaning, self._full
        )
        self.capped = 0
        self.moves: Counter[tuple[str, str]] = Counter()  # why, outcome
        cluster.subscribe(self.look)
        cluster.answers_move = self.may_leave

    @contextmanager
    def watching(self, source: Source) -> Iterator[None]:
        self._sources.add(source)
        try:
            yield
        finally:
            self._sources.discard(source)

    @property
    def may_move(self) -> bool:
        """Whether the version in force could ever move an answer."""
        return self._balance is not None or any(Response.MOVE in each.order for each in self._policies.values())

    def may_leave(self, worker: Worker) -> bool:
        """Whether answers of this worker may have to be read elsewhere. A large fleet has very many pairs of decode workers: they
        shake hands when one is filling, and not all at the start."""
        filling = self._balance is not None or fills(worker)
        return (filling and self.may_move) or (self._controller.empties and to_empty(worker))

    @property
    def rows(self) -> tuple[MoveRow, ...]:
        return tuple(MoveRow(*key, count) for key, count in sorted(self.moves.items()))

    def resumed(self, order: Order, source_id: str) -> None:
        """A move that was over is under way after all: its answer has left."""
        self._emptying.resumed(order, source_id)

    def moved(self, moved: Moved) -> None:
        """What became of a move."""
        self.moves[moved.why, moved.outcome] += 1
        target = self._cluster.worker(moved.target)
        if moved.outcome == Outcome.REFUSED and target is not None:
            self._refused[moved.target] = word(target)
        self._emptying.moved(moved)

    def _full(self, worker: Worker) -> bool:
        """It has refused an answer, and said nothing since: it is not asked for the next one."""
        return self._refused.get(worker.worker_id) == word(worker)

    def look(self) -> None:
        self._tell()
        policies, balance = self._policies, self._balance
        if any(policy.order for policy in policies.values()):
            for worker in [one for one in self._cluster.workers() if self._news_of(one)]:
                if (pressed := _pressed(worker)) or (self.may_move and self._will_be_short(worker)):
                    self._make_room(worker, policies, pressed)
        if balance is not None:
            self._even_out(balance)
        self._emptying.look()

    def _make_room(self, worker: Worker, policies: Mapping[str, OverrunPolicy], pressed: bool) -> None:
        """Answers move before KV runs out, and are capped only when it has."""
        self._looked[worker.worker_id] = word(worker)
        answers = [each for each in self.growing() if worker.worker_id in (each.worker_id, each.left)]
        running = {each.name: each for each in answers if each.worker_id == worker.worker_id}
        others = [one for one in self._cluster.workers() if not self._full(one)] if self.may_move else []
        targets = targets_for(worker, self._cluster, others, emergency=True)
        look_s = self._cluster.config.health.watch_interval_s
        for some in keen(targets, self._leaning()):
            action = decide(pressure(worker, answers, look_s, some), policies, self._prices)
            if action.response is Response.MOVE:
                break
        if action.response is Response.CAP and pressed:
            for name in action.request_ids:
                running[name].cap()
                self.capped += 1
        self._send(action, running, Why.OVERRUN)

    def _even_out(self, balance: Balance) -> None:
        """One answer at a time, and neither worker again before it has said how it is since."""
        ready = [one for one in self._cluster.workers() if one.ready and one.role.decodes and one.state is not None]
        known = {one.worker_id: one for one in ready if self._evened.get(one.worker_id) != word(one)}
        for full, emptier in full_ones([standing(one) for one in ready], balance):
            if full.worker_id in known and self._relieved(full, emptier, known):
                return

    def _relieved(self, full: Standing, emptier: Sequence[Standing], known: Mapping[str, Worker]) -> bool:
        """Whether an answer was sent from the full worker to one of the emptier."""
        source = known[full.worker_id]
        leaning = self._leaning()  # a worker that computes prompts for others is the emptiest, and is to stay so
        able = [known[one.worker_id] for one in emptier if one.worker_id in known and one.worker_id not in leaning]
        others = [one for one in able if not self._full(one)]
        targets = targets_for(source, self._cluster, others)
        if not targets:
            return False  # nor is anything remembered: the first that says it has room is looked at
        self._evened[source.worker_id] = word(source)
        running = self._running(source)
        if any(each.leaving for each in running.values()):
            return False
        answers = [answer_of(each, source, targets) for each in running.values() if each.ways]
        action = even_out(full, emptier, targets, answers, self._prices)
        for move in action.moves:
            self._evened[move.worker_id] = word(known[move.worker_id])
        self._send(action, running, Why.BALANCE)
        return bool(action.moves)

    def _send(self, action: Action, running: Mapping[str, Growing], why: Why) -> None:
        for move in action.moves:
            running[move.request_id].move(Order(why, move.worker_id, move.by, action.numbers))

    def growing(self) -> Iterator[Growing]:
        """Every answer that is under way."""
        for source in self._sources:
            yield from source.growing()

    def _running(self, worker: Worker) -> dict[str, Growing]:
        return {each.name: each for each in self.growing() if each.worker_id == worker.worker_id}

    def _tell(self) -> None:
        """That answers go on says how long answers get, before any of them has ended."""
        if self._controller.lengths.untold:
            self._controller.lengths.running([(each.features, each.generated_tokens) for each in self.growing()])

    @property
    def _policies(self) -> Mapping[str, OverrunPolicy]:
        """Of the version in force; it may change while answers run."""
        return {name: klass.overrun for name, klass in self._controller.classes.by_name.items()}

    @property
    def _balance(self) -> Balance | None:
        return self._controller.balance

    def _news_of(self, worker: Worker) -> bool:
        """One state is looked at once: the news that answers have left is no news of KV, and would end the next, and the next.
        Nor is it looked at again where nothing came of it: that takes all answers, and there is news with every one that ends."""
        return worker.ready and worker.state is not None and self._looked.get(worker.worker_id) != word(worker)

    def _will_be_short(self, worker: Worker) -> bool:
        """Before it can say so again."""
        state, look_s = worker.state, self._cluster.config.health.watch_interval_s
        return state is not None and state.blocks_used + growth_blocks(worker, look_s) > state.blocks_total

    @property
    def _prices(self) -> Prices:
        return Prices(self._controller.pace.prompt_tokens_per_s or ASSUMED_PREFILL_TOKENS_PER_S)


def _pressed(worker: Worker) -> bool:
    """Whether the emergency pool, or where there is none all KV, is in use."""
    state = worker.state
    return state is not None and state.pool_blocks_used >= state.pool_blocks and state.running > 0
