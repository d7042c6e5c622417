"""The view that routing has of the simulated fleet, kept from turn to turn, is the one that would be made anew."""

from dataclasses import replace

import pytest

from gateway.policy.fleet import Room
from gateway.policy.prefix import BlockHashes
from gateway.policy.routing import Fleet
from loadgen.simulate.fleet import SimFleet
from loadgen.simulate.simulation import Simulation
from tests.examples import first
from tests.loadgen.simulate.cases import case, harsh


def anew(fleet: SimFleet, prefix: BlockHashes) -> Fleet:
    up = [worker for worker in fleet.workers.values() if worker.up]
    decodes = [
        replace(worker.as_decode(fleet.now_s), cached_tokens=worker.cached_tokens(prefix))
        for worker in up
        if worker.role.decodes
    ]
    prefills = [worker.as_prefill() for worker in up if worker.role.prefills]
    return Fleet(tuple(decodes), tuple(prefills), {reader: fleet.links_of(reader) for reader in fleet.workers})


class Looks:
    """Every look at a fleet, held against one made anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed = self.cached = self.promised = 0
        kept = SimFleet.view

        def view(fleet: SimFleet, prefix: BlockHashes) -> Fleet:
            seen = kept(fleet, prefix)
            self._compare(seen, anew(fleet, prefix))
            return seen

        monkeypatch.setattr(SimFleet, "view", view)

    def _compare(self, seen: Fleet, wanted: Fleet) -> None:
        assert (seen.decodes, seen.prefills) == (wanted.decodes, wanted.prefills)
        for decode in seen.decodes:
            assert seen.partners(decode.worker_id) == wanted.partners(decode.worker_id)
            self.closed += decode.closed
            self.cached += decode.cached_tokens > 0
            self.promised += decode.blocks_free < decode.blocks_total
        if seen.decodes:
            assert seen.room(forecast=False) == Room.of(wanted.decodes, forecast=False)
        assert seen.dedicated == wanted.dedicated


@pytest.mark.parametrize("seeds", first(1, [range(10), range(10, 40)]), ids=str)
def test_it_is_whatever_happens_to_workers(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    looks = Looks(monkeypatch)
    for seed in seeds:
        for drawn in (case(seed), harsh(seed)):
            Simulation(drawn.layout, drawn.schedule).run()
    assert looks.closed
    assert looks.cached
    assert looks.promised
