"""From a reservation to the end of an answer: prefill legs, hand-offs, decode legs, and what follows a failure."""

from engine.simulated.job import Event, Kind
from gateway.policy.routing import Path
from gateway.request.errors import Reason
from loadgen.simulate.decode_legs import DecodeLegs
from loadgen.simulate.flight import Flight
from loadgen.simulate.ground import Ground
from loadgen.simulate.moves import Moves
from loadgen.simulate.prefill_legs import PrefillLegs
from loadgen.simulate.worker import SimWorker


class Legs:
    """Sends every flight its way, and tells its legs what engines say of them."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._decode = DecodeLegs(ground, self.begin)
        self._prefill = PrefillLegs(ground, self._decode)
        self.moves = Moves(ground, self._decode.remote)

    @property
    def handoffs(self) -> int:
        return self._decode.handoffs

    @property
    def under_way(self) -> int:
        """Flights that an engine works for."""
        return len(self._ground.flights)

    def begin(self, flight: Flight) -> None:
        """The flight holds a reservation."""
        flight.failed.clear()
        if flight.path is Path.REMOTE:
            self._prefill.begin(flight)
        else:
            self._decode.local(flight)

    def drop(self, flight: Flight) -> None:
        """Gives back everything that the flight holds anywhere, in whatever state it is."""
        self._ground.drop(flight)

    def given(self, flight: Flight) -> int:
        """Tokens that the client has by now."""
        return self._ground.given(flight)

    def hear(self, engine: str, event: Event) -> None:
        """News of one engine."""
        flight = self._ground.flights.get(event.request_id)
        if flight is None or flight.leg is None or flight.leg.name != event.request_id:
            return
        leg, now_s = flight.leg, event.time_s
        match event.kind:
            case Kind.STARTED:
                leg.started_s = now_s
                leg.cached = event.cached
            case Kind.LOADING:
                leg.loading_s = now_s
            case Kind.PREEMPTED:
                flight.preemptions += 1
            case Kind.FIRST_TOKEN:
                leg.first_s = now_s
                if self._ground.roles is not None:
                    self._ground.roles.prefilled(flight.bid.request_id, leg.worker)
                if not leg.prefill:
                    self.moves.first(flight, leg)
                    self._decode.first(flight, leg)
            case Kind.HELD if leg.prefill:
                self._prefill.over(flight, leg)
            case Kind.HELD:
                self.moves.handed(flight, leg, event.tokens, event.gaps)
            case Kind.FINISHED:
                self._decode.finished(flight, event.gaps)
            case Kind.FAILED:
                self._decode.outgrown(flight, leg, event.tokens)

    def lost(self, worker: SimWorker, broken_pulls: list[str]) -> None:
        """The worker and all that it held are gone; `broken_pulls` name decode legs elsewhere that read from it."""
        flights = self._ground.flights
        legs = [flight for flight in flights.values() if flight.leg is not None and flight.leg.worker is worker]
        readers = {name: flights[name] for name in broken_pulls if name in flights}
        waiting = [
            flight
            for flight in flights.values()
            if flight.held is not None and flight.held.worker is worker and flight.leg is not None
            and flight.leg.worker is not worker and not flight.leg.submitted
        ]  # fmt: skip
        reserved = [
            flight
            for flight in flights.values()
            if flight.decode is worker and flight.leg is not None and flight.leg.worker is not worker
        ]
        for flight in [*readers.values(), *waiting]:
            self._decode.failed(flight, Reason.HANDOFF_FAILED, of_the_way=True)
        for flight in legs:
            leg = flight.leg
            if leg is None or leg.worker is not worker:
                continue
            if leg.prefill:
                self._prefill.failed(flight, leg, Reason.WORKER_LOST)
            else:
                self._decode.failed(flight, Reason.WORKER_LOST, of_the_way=False)
        for flight in reserved:
            if flight.leg is not None and flight.decode is worker:
                self._decode.failed(flight, Reason.WORKER_LOST, of_the_way=False)
