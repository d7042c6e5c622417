"""What prefill and decode legs have in common: who is under way, what a flight holds, and how it is given back."""

from collections.abc import Callable

from engine.simulated.job import Job
from gateway.config import GatewayConfig
from gateway.request.errors import Reason
from loadgen.simulate.desk import Desk
from loadgen.simulate.fleet import SimFleet
from loadgen.simulate.flight import Flight, Leg
from loadgen.simulate.worker import SimWorker


class Ground:
    """`done` is told of an answer that is complete, `failed` of one that cannot be, with the tokens it has given."""

    def __init__(
        self,
        fleet: SimFleet,
        config: GatewayConfig,
        desk: Callable[[], Desk],
        done: Callable[[Flight], None],
        failed: Callable[[Flight, Reason, int], None],
    ) -> None:
        self.fleet = fleet
        self.config = config
        self.desk = desk
        self.done = done
        self.failed = failed
        self.roles = fleet.roles
        self.flights: dict[str, Flight] = {}

    def learn_prefix(self, worker: SimWorker, flight: Flight) -> None:
        """What the worker has computed, it may find in its cache the next time."""
        if self.roles is not None or self.config.routing.local_prefill_below_tokens:
            worker.prefix.insert(flight.bid.prefix.hashes(worker.pool.limits.block_size))

    def new_leg(self, flight: Flight, worker: SimWorker, *, prefill: bool) -> Leg:
        flight.legs += 1
        name = f"{flight.bid.request_id}-{flight.legs}"
        leg = flight.leg = Leg(name, worker, worker.epoch, self.fleet.now_s, prefill, flight.prompt_tokens)
        self.flights[name] = flight
        return leg

    def priority(self, flight: Flight) -> int:
        """Of its prompt: one that fluid roles expect too late goes behind those that may be in time."""
        late = self.roles is not None and self.roles.policy.late(flight.bid.request_id)
        return flight.bid.priority + late

    def submit(self, worker: SimWorker, job: Job) -> None:
        if self.roles is not None:
            self.roles.attend(worker)
        self.fleet.engines.submit(worker.name, job)

    def alive(self, leg: Leg) -> bool:
        """Whether the worker still is what it was when the leg was sent."""
        return leg.worker.epoch == leg.epoch

    def release(self, held: Leg) -> None:
        if self.alive(held):
            self.fleet.engines.release(held.worker.name, held.name)

    def no_longer_foreign(self, leg: Leg) -> None:
        if leg.foreign and self.alive(leg):
            leg.worker.foreign -= 1
        leg.foreign = False

    def unplug(self, flight: Flight, *, returned: bool) -> None:
        """Ends the part of the reservation that runs, and the place at the gate."""
        if flight.pull is not None:
            flight.pull.end()
            flight.pull = None
        if flight.hold is not None:
            flight.hold.end(returned=returned)
            flight.hold = None
            if flight.decode is not None:
                flight.decode.touched()
        if flight.leg is not None and flight.leg.worker.overrun:
            flight.leg.worker.overrun.pop(flight.leg.name, None)

    def fail(self, flight: Flight, reason: Reason) -> None:
        given = self.given(flight)
        self.drop(flight)
        self.failed(flight, reason, given)

    def prefill_over(self, leg: Leg) -> None:
        if self.alive(leg):
            leg.worker.prompt_over(leg.tokens)

    def drop(self, flight: Flight) -> None:
        """Gives back everything that the flight holds anywhere, in whatever state it is."""
        flight.step += 1
        leg = flight.leg
        if leg is not None:
            self.flights.pop(leg.name, None)
            if leg.prefill:
                self.prefill_over(leg)
                self.no_longer_foreign(leg)
            if leg.submitted and self.alive(leg):
                self.fleet.engines.abort(leg.worker.name, leg.name)
        if flight.held is not None:
            if leg is None or not leg.submitted:
                self.release(flight.held)
            self.no_longer_foreign(flight.held)
        self.unplug(flight, returned=False)
        if flight.reservation and flight.decode is not None:
            flight.decode.ledger.release(flight.reservation)
        flight.leg = flight.held = None
        flight.reservation = ""
        if self.roles is not None:
            self.roles.policy.ended(flight.bid.request_id)

    def given(self, flight: Flight) -> int:
        """Tokens that the client has by now."""
        leg = flight.leg
        if leg is None or leg.prefill or leg.first_s is None or not self.alive(leg):
            return flight.carried
        tokens = self.fleet.settled(leg.worker).total_tokens(leg.name)
        return flight.carried + max(1, tokens - leg.tokens)
