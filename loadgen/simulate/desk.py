"""The gateway's dispatch in virtual time: timers for deadlines, and workers that answer at once."""

from collections.abc import Callable

from gateway.config import GatewayConfig
from gateway.policy.dispatch import Dispatch
from gateway.policy.routing import Dead, NoRoute, Placement, Rules
from gateway.policy.standing import REOPEN_S
from gateway.policy.turned_away import TurnedAway, Why
from gateway.request.errors import RequestError
from gateway.request.refusals import turned_away
from loadgen.simulate.fleet import SimFleet
from loadgen.simulate.flight import Flight
from loadgen.simulate.layout import Policies
from proto.reservation import Refusal, RefusalReason, ReserveRequest

GATEWAY = "gateway"


class Desk:
    """`placed` is told of a flight with a reservation, `refused` of one that gets none."""

    def __init__(
        self,
        fleet: SimFleet,
        config: GatewayConfig,
        placed: Callable[[Flight], None],
        refused: Callable[[Flight, RequestError], None],
    ) -> None:
        layout = fleet.layout
        self._fleet = fleet
        self._config = config
        self._placed = placed
        self._refused = refused
        self._reserve_s = layout.overheads.reserve_s
        self.controller = layout.controller(config, lambda: fleet.now_s) if layout.controller else None
        self.dispatch = self._dispatch(layout.policies, config)
        self._reopening = False
        self._looking = False
        self._pumping = self._again = False

    def enter(self, flight: Flight) -> None:
        """A place for the flight, now or when its turn comes."""
        flight.step += 1
        flight.asked_s = now_s = self._fleet.now_s
        step = flight.step
        if self.controller is not None and flight.bid.plan is not None:
            flight.bid.claim = self.controller.claim(flight.bid.plan)
            late_s = max(now_s, self.controller.lapse_s(flight.bid.claim))
            self._fleet.engines.at(late_s, lambda: self._late(flight, step))
        else:
            self._fleet.engines.deadline(
                self._config.deadlines.queue_s, lambda: self._late(flight, step), lambda: flight.step != step
            )
        self._line_up(flight)

    def pump(self) -> None:
        """Something may have come free. A refusal that frees more is seen to by the round under way."""
        if not len(self.dispatch):
            return
        self._again = True
        if self._pumping:
            return
        self._pumping = True
        while self._again:
            self._again = False
            self._turns()
        self._pumping = False
        if len(self.dispatch):
            self._pump_later()

    def _turns(self) -> None:
        for ask, verdict in self.dispatch.turns():
            ask.item.entry = None
            if isinstance(verdict, Placement):
                self._ask(ask.item, verdict)
            else:
                self._refused(ask.item, turned_away(verdict))

    def leave(self, flight: Flight) -> None:
        """The client is gone."""
        if flight.entry is not None:
            self.dispatch.leave(flight.entry)
            flight.entry = None
            self.pump()

    def look_again(self) -> None:
        """Workers whose engines hold more than is reserved say so now and then, as they do in life."""
        if not self._looking and any(True for _ in self._fleet.inexact()):
            self._looking = True
            self._fleet.engines.at(self._fleet.now_s + self._config.health.watch_interval_s, self._looked)

    def _looked(self) -> None:
        self._looking = False
        for worker in list(self._fleet.inexact()):
            if worker.exact:
                self._fleet.load(worker)
            worker.heard()
        self.look_again()
        self.pump()

    def _line_up(self, flight: Flight) -> None:
        entry = self.dispatch.enter(flight.bid, flight)
        if isinstance(entry, TurnedAway):
            self._refused(flight, turned_away(entry))
        elif isinstance(entry, Placement):
            self._ask(flight, entry)
        else:
            flight.entry = entry
            self.pump()
            for ask, verdict in self.dispatch.overflow():
                ask.item.entry = None
                self._refused(ask.item, turned_away(verdict))

    def _ask(self, flight: Flight, placement: Placement) -> None:
        """The worker's word, which comes back after the time that a call takes."""
        bid, fleet = flight.bid, self._fleet
        bid.asks += 1
        worker = fleet.worker(placement.worker_id)
        ledger, epoch = worker.ledger, worker.epoch
        request = self._request(flight, placement)
        forecast = bool(request.lengths)
        # The worker's forecast is drawn by the reservation itself; looked at before, it would be for nothing.
        load = fleet.figures(worker) if forecast else fleet.load(worker)
        reply = ledger.reserve(request, load)
        worker.touched()
        if forecast and not worker.exact:
            worker.reckon(load)
        elif forecast and not isinstance(reply, Refusal):
            worker.reckon(worker.load(fleet.settled(worker)))
        if isinstance(reply, Refusal):
            worker.refused(fleet.now_s)
            if reply.reason is RefusalReason.NEVER_FITS:
                bid.never.add(worker.name)
        else:
            flight.decode = worker
            flight.path, flight.prefill_id = placement.path, placement.prefill_id
            flight.reservation = reply.reservation_id
            flight.lengths = request.lengths
            if fleet.roles is not None:
                computing = fleet.worker(placement.prefill_id or placement.worker_id)
                cached = computing.cached_tokens(bid.prefix)
                fleet.roles.taken(bid.request_id, placement, bid.need, cached)
        step = flight.step
        fleet.engines.at(fleet.now_s + self._reserve_s, lambda: self._heard(flight, step, epoch))

    def _request(self, flight: Flight, placement: Placement) -> ReserveRequest:
        bid = flight.bid
        name, ttl_s = f"{bid.request_id}-r{bid.asks}", self._config.reservation_ttl_s
        if self.controller is not None:
            return self.controller.reserve(bid, GATEWAY, name, ttl_s, placement, lambda: self._fleet.view(bid.prefix))
        need = bid.need
        return ReserveRequest(
            GATEWAY,
            name,
            need.prompt_tokens,
            need.growth_tokens,
            ttl_s,
            need.answers,
            flight.lengths,
            flight.limit_tokens,
        )

    def _dispatch(self, policies: Policies, config: GatewayConfig) -> Dispatch[Flight]:
        rules, view, clock = Rules.of(config.routing), self._fleet.view, lambda: self._fleet.now_s
        controller, limit = self.controller, config.admission.max_queued
        placing = policies.place if self._fleet.roles is None else self._fleet.roles.policy.place
        if controller is None:
            line = policies.line(limit)
            return Dispatch(line, rules, view, self._final, clock, placing=placing, objection=policies.objection)
        return Dispatch(
            controller.line(limit),
            rules,
            view,
            self._final,
            clock,
            placing=placing,
            objection=controller.objection,
            decided=controller.decided,
        )

    def _heard(self, flight: Flight, step: int, epoch: int) -> None:
        if flight.step != step:
            return
        worker = flight.decode
        if not flight.reservation or worker is None:
            self._line_up(flight)
        elif worker.epoch != epoch:
            flight.reservation = ""  # the worker was lost as it answered
            flight.bid.avoid.add(worker.name)
            self._line_up(flight)
        else:
            self.dispatch.granted()
            if self.controller is not None:
                self.controller.early.granted()
            waited_s = self._fleet.now_s - flight.asked_s
            flight.queue_s += waited_s
            flight.line_s += max(0.0, waited_s - self._reserve_s)
            flight.step += 1
            self._placed(flight)

    def _late(self, flight: Flight, step: int) -> None:
        if flight.step != step:
            return
        self.leave(flight)
        self._give_back(flight)
        broken = self.controller is not None and self.controller.broken_promise(flight.bid.claim)
        why = Why.TTFT if broken else Why.QUEUE_TIMEOUT
        away = self.dispatch.too_late(flight.bid, self._fleet.now_s - flight.asked_s, why)
        self._refused(flight, turned_away(away))

    def _give_back(self, flight: Flight) -> None:
        """What a worker has granted, where its word comes too late."""
        if flight.reservation and flight.decode is not None:
            flight.decode.ledger.release(flight.reservation)
        flight.reservation, flight.decode = "", None
        if self._fleet.roles is not None:
            self._fleet.roles.policy.ended(flight.bid.request_id)

    def _final(self, route: NoRoute) -> bool:
        return not self._fleet.recovering(prefill=route.why is Dead.NO_PREFILL)

    def _pump_later(self) -> None:
        """A worker that refused opens again by itself; look again then."""
        now_s = self._fleet.now_s
        waits = any(w.door.closed(now_s) for w in self._fleet.workers.values()) or self._hoping()
        if waits and not self._reopening:
            self._reopening = True
            self._fleet.engines.at(now_s + REOPEN_S, self._reopened)

    def _hoping(self) -> bool:
        return self._fleet.recovering(prefill=True) or self._fleet.recovering(prefill=False)

    def _reopened(self) -> None:
        self._reopening = False
        self.pump()
