"""The clients of a schedule in virtual time: who sends when, who gives up, and what each has seen."""

from collections.abc import Callable, Iterator
from functools import partial

from gateway.policy.bid import Bid
from gateway.policy.control.plan import Asked
from gateway.policy.estimate import Features, FinishedBy
from gateway.policy.fairness.limits import Limited
from gateway.request.errors import Reason, RequestError
from gateway.request.refusals import limited
from loadgen.client.outcome import Cut, refused
from loadgen.result import Ending, Result
from loadgen.schedule import Planned, Schedule
from loadgen.simulate.desk import Desk
from loadgen.simulate.fleet import SimFleet
from loadgen.simulate.flight import Flight
from loadgen.simulate.keys import prompt_blocks
from loadgen.simulate.layout import Declared, Estimate
from loadgen.simulate.legs import Legs
from loadgen.stream import Stream


class Clients:
    """Open loop: every request at its own time. Closed loop: `concurrency` clients, one request after another."""

    def __init__(
        self,
        schedule: Schedule | Stream,
        fleet: SimFleet,
        desk: Desk,
        legs: Legs,
        over: Callable[[], None],
        took: Callable[[Result], None] | None,
    ) -> None:
        """`over` is told when the last request has ended. `took` gets every result, which then is not kept."""
        self._schedule = schedule
        self._over = over
        self._took = took
        self._fleet = fleet
        self._desk = desk
        self._legs = legs
        self._layout = fleet.layout
        self._queue: Iterator[Planned] = iter(schedule.requests)
        self._followers: dict[int, list[Callable[[], None]]] = {}
        if isinstance(schedule, Schedule):
            self._followers = {planned.after: [] for planned in schedule.requests if planned.after is not None}
        self._ended: set[int] = set()
        #: In order of the schedule.
        self.results: list[Result | None] = [None] * schedule.count if took is None else []
        #: Requests that have been sent and have not ended, by index.
        self.under_way: dict[int, Flight] = {}
        self.left = schedule.count
        self.last_s = 0.0  # when the last of them ended
        self.preemptions = 0

    def start(self) -> None:
        if self._schedule.arrivals.open_loop:
            self._next_arrival()
        else:
            for _ in range(self._schedule.arrivals.concurrency):
                self._next_in_turn()

    # sending

    def _next_arrival(self) -> None:
        """One timer at a time, whatever the length of the schedule."""
        for planned in self._queue:
            if planned.after is None:
                self._fleet.engines.at(planned.at_s, partial(self._arrive, planned))
                return
            self._follow(planned, planned.after)

    def _arrive(self, planned: Planned) -> None:
        self._send(planned)
        self._next_arrival()

    def _next_in_turn(self) -> None:
        planned = next(self._queue, None)
        if planned is None:
            return
        if planned.after is None:
            self._send(planned)
        else:
            self._follow(planned, planned.after)

    def _follow(self, planned: Planned, after: int) -> None:
        """A turn of a session: think time after the answer before it."""

        def follow() -> None:
            self._fleet.engines.at(self._fleet.now_s + planned.demand.think_s, lambda: self._send(planned))

        if after in self._ended:
            follow()
        else:
            self._followers[after].append(follow)

    def _send(self, planned: Planned) -> None:
        fleet, demand = self._fleet, planned.demand
        layout = self._layout
        declared = demand.output_tokens if layout.declared is Declared.EXACT else None
        known = Estimate(
            demand, declared, layout.gateway.admission.default_output_tokens, fleet.window, fleet.kv_tokens
        )
        room = fleet.window - demand.prompt_tokens
        # as at the gateway's door; a fleet without a window has nobody who decodes, and is refused for that
        too_long = fleet.window > 0 and (room < 1 or (declared or 0) > room)
        controller = self._desk.controller
        plan = None if controller is None or too_long else controller.plan(self._asked(known))
        need = layout.policies.need(known) if plan is None else plan.need
        place = self._desk.dispatch.arrive()
        bid = Bid(str(planned.index), need, prompt_blocks(demand), place, tenant=demand.tenant, plan=plan)
        # whoever leaves after some tokens is one whose answer ends there
        leaves = demand.leave_after_tokens
        tokens = demand.output_tokens if leaves is None else min(leaves, demand.output_tokens)
        flight = Flight(planned, fleet.now_s, bid, max(1, min(tokens, room)))
        self.under_way[planned.index] = flight
        if too_long:
            self.refused(flight, RequestError(Reason.CONTEXT_LENGTH, ""))
            return
        if controller is None or plan is None:
            flight.lengths = layout.policies.lengths(known)
            flight.limit_tokens = declared or 0
        else:
            entered = controller.enter(demand.tenant, [plan])
            if isinstance(entered, Limited):
                self.refused(flight, limited(entered))
                return
            flight.entered = entered
        limit_s = layout.client_timeout_s
        if demand.patience_s is not None and demand.patience_s < limit_s:
            fleet.engines.at(fleet.now_s + demand.patience_s, lambda: self._out_of_patience(flight))
        if limit_s < float("inf"):
            fleet.engines.deadline(
                limit_s, lambda: self._cut(flight, Ending.TIMED_OUT, Cut.TIMEOUT), lambda: not flight.open
            )
        self._desk.enter(flight)

    def _asked(self, known: Estimate) -> Asked:
        demand = known.demand
        # a trace's label stands for what the client declares, so that a policy's classes may go by it
        features = Features(self._layout.model, demand.prompt_tokens, demand.tenant, demand.klass, demand.klass)
        room = max(1, known.window - demand.prompt_tokens)
        limit = known.declared or room
        return Asked(features, 1, limit, known.declared is not None, known.window, known.kv_tokens)

    # ends

    def done(self, flight: Flight) -> None:
        """Every token has come."""
        planned = flight.planned.demand
        leaves = planned.leave_after_tokens
        if leaves is not None and leaves < planned.output_tokens:
            self._end(flight, Ending.CANCELLED, Cut.PLAN.value, 200, flight.output_tokens)
        else:
            self._end(flight, Ending.COMPLETED, "", 200, flight.output_tokens)

    def failed(self, flight: Flight, reason: Reason, given: int) -> None:
        """Something broke: before the first token the client sees a status, after it an error in the stream."""
        status = 200 if flight.first_s is not None else RequestError(reason, "").status
        ending, text = refused(status, {"code": reason.value})
        self._end(flight, ending, text, status, given)

    def refused(self, flight: Flight, error: RequestError) -> None:
        flight.step += 1
        ending, text = refused(error.status, {"code": error.reason.value})
        self._end(flight, ending, text, error.status, 0)

    def _account(self, flight: Flight, result: Result, given: int, ending: Ending) -> None:
        """What the gateway tells its policy when a request is over."""
        controller, bid = self._desk.controller, flight.bid
        if controller is None or bid.plan is None:
            return
        by = {Ending.COMPLETED: FinishedBy.STOP, Ending.FAILED: FinishedBy.FAILED, Ending.REJECTED: FinishedBy.FAILED}
        controller.answered(bid, given, by.get(ending, FinishedBy.CLIENT_LEFT))
        prompt = flight.planned.demand.prompt_tokens
        self._desk.dispatch.settle(bid, prompt if given else 0, given)
        if flight.entered is not None:
            controller.leave(flight.entered, prompt + given)
        if result.first_s is not None:
            computed = prompt - flight.cached_tokens
            controller.pace.seen(computed, flight.prefill_s, given - 1, result.end_s - result.first_s)

    def _out_of_patience(self, flight: Flight) -> None:
        if flight.open and flight.first_s is None:
            self._cut(flight, Ending.ABANDONED, Cut.PATIENCE)

    def _cut(self, flight: Flight, ending: Ending, why: Cut) -> None:
        """The client goes; the gateway takes everything back."""
        if not flight.open:
            return
        given = self._legs.given(flight)
        self._desk.leave(flight)
        self._legs.drop(flight)
        self._end(flight, ending, why.value, 200 if flight.first_s is not None else 0, given)

    def _end(self, flight: Flight, ending: Ending, reason: str, status: int, given: int) -> None:
        flight.open = False
        index, self.last_s = flight.planned.index, self._fleet.now_s
        result = flight.result(self.last_s, ending, reason, status, given)
        if self._took is None:
            self.results[index] = result
        else:
            self._took(result)
        self.preemptions += flight.preemptions
        del self.under_way[index]
        self.left -= 1
        self._account(flight, result, given, ending)
        self._layout.policies.ended(flight.planned.demand, given, ending is Ending.COMPLETED)
        if index in self._followers:
            self._ended.add(index)
            for follow in self._followers.pop(index):
                follow()
        self._desk.pump()
        if not self.left:
            self._over()
        elif not self._schedule.arrivals.open_loop:
            # not from here: one refusal after another would call itself without end
            self._fleet.engines.at(self._fleet.now_s, self._next_in_turn)
