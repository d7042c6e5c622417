"""Between the simulated fleet and the role policy: what happened, and what the engines shall do."""

from typing import TYPE_CHECKING

from gateway.policy.need import Need
from gateway.policy.roles import Fluid
from gateway.policy.routing import Placement
from loadgen.simulate.worker import SimWorker
from proto.worker import StepTotals

if TYPE_CHECKING:
    from loadgen.simulate.fleet import SimFleet

_NOTHING = StepTotals()


class Roles:
    """Workers with prompts in hand are looked at every `look_s`, and whenever they get another one."""

    def __init__(self, fleet: "SimFleet", policy: Fluid) -> None:
        self._fleet = fleet
        self.policy = policy
        self._seen: dict[tuple[str, int], StepTotals] = {}
        self._looking = False

    def taken(self, key: str, placement: Placement, need: Need, cached_tokens: int) -> None:
        self._read(self._fleet.worker(placement.prefill_id or placement.worker_id))
        self.policy.taken(key, placement, need, cached_tokens)
        if not self._looking:
            self._looking = True
            self._look_later()

    def prefilled(self, key: str, worker: SimWorker) -> None:
        """An answer that begins bounds the very next step."""
        self.policy.prefilled(key)
        self.attend(worker)

    def moved(self, key: str, worker: SimWorker) -> None:
        self.policy.moved(key)
        self.attend(worker)

    def attend(self, worker: SimWorker) -> None:
        """Reads the worker's steps and sets its budget."""
        self._read(worker)
        policy = self.policy
        self._fleet.engines.limit_step(worker.name, policy.budget(worker.name), policy.chunk_tokens(worker.name))

    def _read(self, worker: SimWorker) -> None:
        engine = self._fleet.settled(worker)
        totals = engine.totals.told()
        key = (worker.name, worker.epoch)
        before = self._seen.get(key, _NOTHING)
        self._seen[key] = totals
        self.policy.stepped(worker.name, totals.since(before))

    def _look_later(self) -> None:
        self._fleet.engines.at(self._fleet.now_s + self.policy.knobs.look_s, self._look)

    def _look(self) -> None:
        busy = [w for w in self._fleet.workers.values() if self.policy.book(w.name).backlog]
        for worker in busy:
            self.attend(worker)
        self._looking = bool(busy)
        if busy:
            self._look_later()
