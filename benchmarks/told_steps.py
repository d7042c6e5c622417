"""The role policy in virtual time, driven as a live gateway drives it: what does being told late cost?

    python -m benchmarks.told_steps {told,whole} compare fluid='sim:… --fluid 1000:28' colocated='sim:…' …

`told`: a worker is told its steps when they change, 3 ms later, and its own steps are read with that and twice a second (the
simulator reads and sets them at once). `whole`: engines keep their steps, and the order of arrival. What follows is `loadgen`'s.
"""

import sys
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING
from unittest.mock import patch

from gateway.policy.need import Need
from gateway.policy.roles import Fluid
from gateway.policy.routing import Placement
from loadgen.cli import main as loadgen
from loadgen.simulate import fleet as fleets
from loadgen.simulate.roles import Roles
from loadgen.simulate.worker import SimWorker

if TYPE_CHECKING:
    from loadgen.simulate.fleet import SimFleet

#: From the gateway's word to the engine's next step.
WORD_S = 0.003
#: How often workers send their state.
STATE_S = 0.5


class Told(Roles):
    """`_wanted` is what was said last, `_kept` the tokens of a step that the engine keeps."""

    def __init__(self, fleet: "SimFleet", policy: Fluid) -> None:
        super().__init__(fleet, policy)
        self._wanted: dict[str, tuple[int, int]] = {}
        self._kept: dict[str, int] = {}
        self._hearing = False

    def taken(self, key: str, placement: Placement, need: Need, cached_tokens: int) -> None:
        self.policy.taken(key, placement, need, cached_tokens)
        if not self._looking:
            self._looking = True
            self._look_later()
        if not self._hearing:
            self._hear()
        self.attend(self._fleet.worker(placement.prefill_id or placement.worker_id))

    def attend(self, worker: SimWorker) -> None:
        name, policy = worker.name, self.policy
        bounds = policy.budget(name), policy.chunk_tokens(name)
        if self._wanted.get(name) != bounds:
            self._wanted[name] = bounds
            self._fleet.engines.at(self._fleet.now_s + WORD_S, lambda: self._say(worker))

    def _say(self, worker: SimWorker) -> None:
        self._read(worker)
        tokens, chunk_tokens = self._wanted[worker.name]
        self._kept[worker.name] = tokens
        self._fleet.engines.limit_step(worker.name, tokens, chunk_tokens)

    def _hear(self) -> None:
        """The workers' states, while there is anything to do."""
        workers = list(self._fleet.workers.values())
        for worker in workers:
            self._read(worker)
        books = [self.policy.book(worker.name) for worker in workers]
        self._hearing = any(book.backlog or book.promised for book in books)
        if self._hearing:
            self._fleet.engines.at(self._fleet.now_s + STATE_S, self._hear)

    def _read(self, worker: SimWorker) -> None:
        self.policy.book(worker.name).budget = self._kept.get(worker.name, 0)
        super()._read(worker)


class Whole(Told):
    """Nobody is told anything."""

    def __init__(self, fleet: "SimFleet", policy: Fluid) -> None:
        most = max(pool.limits.max_batched_tokens for pool in fleet.layout.pools)
        policy.knobs = replace(policy.knobs, largest_step_tokens=most, smallest_chunk_tokens=most, late_share=inf)
        super().__init__(fleet, policy)

    def attend(self, worker: SimWorker) -> None:
        pass


def main() -> None:
    ways: dict[str, type[Roles]] = {"told": Told, "whole": Whole}
    if len(sys.argv) < 2 or sys.argv[1] not in ways:
        sys.exit(f"told or whole, and then what loadgen is to do:\n{__doc__}")
    with patch.object(fleets, "Roles", ways[sys.argv.pop(1)]):
        loadgen()


if __name__ == "__main__":
    main()
