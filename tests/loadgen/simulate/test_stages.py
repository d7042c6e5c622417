"""The two places at which a comparison may refuse: before a prompt is computed, and after."""

from dataclasses import replace

from gateway.policy.bid import Bid
from gateway.policy.rejection import Reject, RejectReason
from gateway.policy.routing import Fleet
from loadgen.demand import Demand
from loadgen.result import Ending, Result
from loadgen.simulate import Policies
from loadgen.simulate.flight import Flight
from loadgen.simulate.simulation import Simulation
from tests.loadgen.simulate.build import layout, nothing_left, opened

REFUSED = (Ending.REJECTED, "decode_overloaded", 503)


def served(policies: Policies) -> list[Result]:
    """Two of three requests are refused; afterwards nobody holds anything."""
    load = opened([(0.01 * n, Demand(100, 40)) for n in range(3)])
    simulation = Simulation(replace(layout(1, 1), policies=policies), load)
    results = list(simulation.run().results)
    nothing_left(simulation)
    return results


def test_what_is_objected_to_is_never_computed() -> None:
    def objection(bid: Bid, fleet: Fleet, waiting: int, admitted_per_s: float) -> Reject | None:
        return Reject(RejectReason.DECODE, 1.0, {}) if bid.request_id != "1" else None

    first, second, third = served(Policies(objection=objection))
    assert second.completed
    assert [(one.ending, one.reason, one.status) for one in (first, third)] == [REFUSED, REFUSED]
    assert first.stages_s == third.stages_s == ()


def test_what_is_thrown_away_has_been_computed_and_was_never_shown() -> None:
    def thrown_away(flight: Flight) -> bool:
        return flight.planned.index != 1

    first, second, third = served(Policies(thrown_away=thrown_away))
    assert second.completed
    assert [(one.ending, one.reason, one.status) for one in (first, third)] == [REFUSED, REFUSED]
    assert dict(first.stages_s)["prefill"] > 0
    assert (first.first_s, first.output_tokens) == (None, 0)
