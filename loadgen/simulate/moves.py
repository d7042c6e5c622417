"""Running answers that leave a full worker for an emptier one, in virtual time (R-26): the gateway's policy, the engines' hand-over."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from engine.simulated.gaps import Gaps
from gateway.policy.admission.balance import Standing, even_out, fullest
from gateway.policy.admission.move import By, Target
from gateway.policy.admission.overrun import Answer, Prices
from gateway.policy.control.going_on import going_on
from gateway.policy.dispatch import Bid
from gateway.policy.prefill_choice import ASSUMED_PREFILL_TOKENS_PER_S
from gateway.policy.routing import Path, Placement
from loadgen.simulate.desk import GATEWAY
from loadgen.simulate.flight import Flight, Leg
from loadgen.simulate.ground import Ground
from loadgen.simulate.worker import SimWorker
from proto.reservation import Refusal


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an answer goes on: granted, and not used yet."""

    flight: Flight
    worker: SimWorker
    epoch: int
    reservation: str

    def give_back(self) -> None:
        if self.worker.epoch == self.epoch:
            self.worker.ledger.release(self.reservation)


class Moves:
    """One answer at a time; none under fluid roles. `on` sends an answer with held KV to its new worker. `counts` by what
    became of them, as in `gateway.request.moving.Outcome`."""

    def __init__(self, ground: Ground, on: Callable[[Flight, Leg], None]) -> None:
        self._ground = ground
        self._on = on
        self._busy: Callable[[], bool] = lambda: False
        self._going: dict[str, _Place] = {}  # by leg
        self._moved: set[int] = set()
        self.counts: Counter[str] = Counter()

    def start(self, busy: Callable[[], bool]) -> None:
        """`busy` says whether anything may still happen."""
        self._busy = busy
        controller = self._ground.desk().controller
        if controller is not None and controller.balance is not None and self._ground.roles is None:
            self._later()

    def _later(self) -> None:
        fleet = self._ground.fleet
        fleet.engines.at(fleet.now_s + self._ground.config.health.watch_interval_s, self._look)

    def _look(self) -> None:
        if not self._busy():
            return
        self._forget()
        if not self._going:
            self._even_out()
        self._later()

    def _forget(self) -> None:
        """Answers that ended, or lost their worker, while they were asked to leave."""
        for name, place in list(self._going.items()):
            if place.flight.leg is None or place.flight.leg.name != name:
                self._end(name, "ended")

    def _end(self, name: str, outcome: str) -> None:
        self._going.pop(name).give_back()
        self.counts[outcome] += 1

    def _even_out(self) -> None:
        fleet, controller = self._ground.fleet, self._ground.desk().controller
        assert controller is not None
        balance = controller.balance
        workers = [worker for worker in fleet.workers.values() if worker.up and worker.role.decodes]
        standings = [
            Standing(worker.name, worker.pool.limits.blocks, fleet.settled(worker).scheduler.pool.used)
            for worker in workers
        ]
        found = None if balance is None else fullest(standings, balance)
        if found is None:
            return
        full, emptier = found
        source = fleet.worker(full.worker_id)
        flights = {answer.request_id: flight for flight, answer in self._running(source)}
        answers = [answer for _, answer in self._running(source)]
        targets = [self._target(source, fleet.worker(one.worker_id)) for one in emptier]
        prices = Prices(controller.pace.prompt_tokens_per_s or ASSUMED_PREFILL_TOKENS_PER_S)
        for move in even_out(full, emptier, targets, answers, prices).moves:
            self._ask(flights[move.request_id], fleet.worker(move.worker_id))

    def _target(self, source: SimWorker, other: SimWorker) -> Target:
        self._ground.fleet.load(other)
        link = self._ground.fleet.links_of(other.name).get(source.name)
        return Target(other.name, other.unpromised, link.bytes_per_s if link else 0.0)

    def _running(self, worker: SimWorker) -> list[tuple[Flight, Answer]]:
        engine, found = self._ground.fleet.settled(worker), []
        step_s = engine.busy_s / engine.steps if engine.steps else 0.0
        size, bytes_each = worker.pool.limits.block_size, worker.pool.profile.kv_bytes_per_token
        for flight in list(self._ground.flights.values()):
            leg, plan = flight.leg, flight.bid.plan
            if leg is None or plan is None or leg.worker is not worker or leg.prefill or leg.first_s is None:
                continue
            if not self._ground.alive(leg) or flight.planned.index in self._moved:
                continue
            tokens = engine.total_tokens(leg.name)
            generated = tokens - flight.planned.demand.prompt_tokens
            left = plan.estimate.given(generated).mean
            answer = Answer(
                leg.name,
                plan.klass.name,
                -(-tokens // size),
                tokens,
                generated,
                tokens * bytes_each,
                -(-round(left) // size),
                left * step_s,
                frozenset({By.TRANSFER}),
            )
            found.append((flight, answer))
        return found

    def _ask(self, flight: Flight, target: SimWorker) -> None:
        """The target's word, which comes back after the time that a call takes."""
        fleet, desk, leg, bid = self._ground.fleet, self._ground.desk(), flight.leg, flight.bid
        assert leg is not None
        assert bid.plan is not None
        assert desk.controller is not None
        generated = fleet.settled(leg.worker).total_tokens(leg.name) - flight.planned.demand.prompt_tokens
        plan = going_on(bid.plan, generated)
        asking = Bid(bid.request_id, plan.need, bid.prefix, desk.dispatch.arrive(), tenant=bid.tenant, plan=plan)
        placement, ttl_s = Placement(target.name, Path.LOCAL, "moved"), self._ground.config.reservation_ttl_s
        name = f"{bid.request_id}-move"
        request = desk.controller.reserve(asking, GATEWAY, name, ttl_s, placement, lambda: fleet.view(bid.prefix))
        reply = target.ledger.reserve(request, fleet.figures(target))
        if isinstance(reply, Refusal):
            self.counts["refused"] += 1
            return
        self._going[leg.name] = _Place(flight, target, target.epoch, reply.reservation_id)
        step, at_s = flight.step, fleet.now_s + fleet.layout.overheads.reserve_s
        fleet.engines.at(at_s, lambda: self._hand_over(flight, leg, step))

    def _hand_over(self, flight: Flight, leg: Leg, step: int) -> None:
        if leg.name not in self._going:
            return
        here = flight.step == step and self._ground.alive(leg)
        if not here or not self._ground.fleet.engines.hand_over(leg.worker.name, leg.name):
            self._end(leg.name, "ended")

    def handed(self, flight: Flight, leg: Leg, tokens: int, gaps: Gaps | None) -> None:
        """The first worker has ended the leg and holds its KV."""
        place, ground = self._going.pop(leg.name), self._ground
        now_s = ground.fleet.now_s
        ground.flights.pop(leg.name, None)
        flight.step += 1
        flight.carried += tokens - leg.tokens
        flight.ends(now_s, gaps)
        if flight.hold is not None:
            flight.hold.end(finished=False)  # of its length this says nothing
            flight.hold = None
        ground.unplug(flight, returned=False)
        leg.worker.ledger.release(flight.reservation)
        leg.tokens, leg.foreign = tokens - 1, True  # as many are computed, and nobody's reservation covers them
        leg.worker.foreign += 1
        flight.leg, flight.held, flight.decode = None, leg, place.worker
        flight.reservation = place.reservation
        self._moved.add(flight.planned.index)
        self.counts["moved"] += 1
        if place.worker.epoch != place.epoch:
            flight.reservation = ""
            ground.drop(flight)
            ground.desk().enter(flight)
            return
        self._on(flight, leg)
