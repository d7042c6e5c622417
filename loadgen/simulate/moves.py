"""Running answers that go on at another worker, in virtual time: the gateway's policy, the engines' hand-over (R-08, R-26)."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.simulated.gaps import Gaps
from gateway.policy.admission.balance import Balance, Standing, even_out, full_ones
from gateway.policy.admission.drain import AT_ONCE, leave
from gateway.policy.admission.overrun import (
    LEAVING_STEPS,
    Action,
    Answer,
    OverrunPolicy,
    Pressure,
    Response,
    decide,
    gained_blocks,
)
from gateway.policy.bid import Bid
from gateway.policy.control.controller import Controller
from gateway.policy.control.going_on import going_on, newest
from gateway.policy.routing import Path, Placement
from loadgen.simulate.changes import RoleChange
from loadgen.simulate.desk import GATEWAY
from loadgen.simulate.flight import Flight, Leg
from loadgen.simulate.ground import Ground
from loadgen.simulate.standing import prices_of, running_on, target_of
from loadgen.simulate.worker import SimWorker
from proto.reservation import Refusal


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an answer goes on: granted, and its first token has not come."""

    flight: Flight
    worker: SimWorker
    epoch: int
    reservation: str

    @property
    def taken(self) -> bool:
        """Whether the answer, which has left, still has it."""
        return self.flight.reservation == self.reservation

    def give_back(self) -> None:
        if self.worker.epoch == self.epoch:
            self.worker.ledger.release(self.reservation)


class Moves:
    """What leaves a worker that would run out of KV, where the policy says `on_overrun: [move]`, what leaves a full one, with
    `balance`, and one whose role has changed, with `drain: move`; nothing under fluid roles. `on` sends an answer with held KV to its new worker. `counts` by what became
    of them, in the words of `gateway.request.moving.Outcome`; nothing is ever `late` here."""

    def __init__(self, ground: Ground, on: Callable[[Flight, Leg], None]) -> None:
        self._ground = ground
        self._on = on
        self._busy: Callable[[], bool] = lambda: False
        self._going: dict[str, _Place] = {}  # by leg
        self._arriving: dict[int, tuple[_Place, str]] = {}  # by number of the answer, with the leg that reads its KV
        self._yields: dict[str, OverrunPolicy] = {}
        self._relieves = False
        self._least_s: dict[str, float] = {}  # of a step of each worker
        self._empties = False
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Counter[str]:
        self._forget()
        return self._counts

    def start(self, busy: Callable[[], bool]) -> None:
        """`busy` says whether anything may still happen."""
        self._busy = busy
        controller = self._ground.desk().controller
        if controller is None or self._ground.roles is not None:
            return
        self._yields = {klass.name: klass.overrun for klass in controller.classes}
        self._relieves = any(Response.MOVE in each.order for each in self._yields.values())
        changes = self._ground.fleet.layout.changes
        self._empties = controller.empties and any(isinstance(change, RoleChange) for change in changes)
        if self._relieves or self._empties or controller.balance is not None:
            self._later()

    def _later(self) -> None:
        fleet = self._ground.fleet
        fleet.engines.at(fleet.now_s + self._ground.config.health.watch_interval_s, self._look)

    def _look(self) -> None:
        if not self._busy():
            return
        self._forget()
        workers = [worker for worker in self._ground.fleet.workers.values() if worker.up and worker.role.decodes]
        if self._relieves:
            for worker in workers:
                if self._may_be_short(worker):
                    self._relieve(worker, workers)
        if self._empties:
            self._empty(workers)
        if not self._going and (balance := self._controller.balance) is not None:
            self._even_out(workers, balance)
        self._later()

    def _may_be_short(self, worker: SimWorker) -> bool:
        """Said without taking the steps until now, which would cost more than all else here: since its last news the engine's
        answers have done nothing but grow, at most so fast."""
        fleet, limits = self._ground.fleet, worker.pool.limits
        engine, least_s = fleet.engines.engines[worker.name], self._least_s.get(worker.name)
        if least_s is None:
            least_s = self._least_s[worker.name] = worker.pool.profile.cost.step_s(1, 0)
        seconds = fleet.now_s - engine.now_s + self._ground.config.health.watch_interval_s
        each = (1.0 + seconds / least_s + LEAVING_STEPS) / limits.block_size + 1.0
        return engine.scheduler.pool.used + each * len(engine.scheduler.running) > limits.blocks

    def _relieve(self, worker: SimWorker, workers: list[SimWorker]) -> None:
        """As many as it takes, and no more before these have gone."""
        fleet, limits, look_s = self._ground.fleet, worker.pool.limits, self._ground.config.health.watch_interval_s
        engine = fleet.settled(worker)
        running, step_s = len(engine.scheduler.running), engine.busy_s / max(1, engine.steps)
        growth = gained_blocks(running, step_s, look_s, limits.block_size)
        leaving = any(place.flight.leg and place.flight.leg.worker is worker for place in self._going.values())
        used = engine.scheduler.pool.used - self._being_read(worker)
        if leaving or used + growth <= limits.blocks:
            return
        targets = [target_of(self._ground, worker, other, emergency=True) for other in workers if other is not worker]
        if all(target.free_blocks < 1 for target in targets):
            return
        flights = running_on(self._ground, worker)
        pool = worker.ledger.expected.budget.pool_blocks
        answers = [answer for _, answer in flights.values()]
        pressure = Pressure(limits.blocks, pool, used, growth, answers, targets)
        self._send(decide(pressure, self._yields, prices_of(self._controller)), flights, emergency=True)

    def _send(self, action: Action, flights: Mapping[str, tuple[Flight, Answer]], *, emergency: bool) -> None:
        for move in action.moves:
            self._ask(flights[move.request_id][0], self._ground.fleet.worker(move.worker_id), emergency=emergency)

    def _empty(self, workers: list[SimWorker]) -> None:
        """Workers that decode no more, and still have answers."""
        fleet = self._ground.fleet
        for worker in fleet.workers.values():
            if not worker.up or worker.role.decodes or not worker.ledger.reservations:
                continue
            asked = {place.flight.planned.index for place in self._going.values()}
            flights = running_on(self._ground, worker)
            answers = [answer for flight, answer in flights.values() if flight.planned.index not in asked]
            targets = [target_of(self._ground, worker, other, emergency=False) for other in workers]
            most = AT_ONCE - self._on_their_way(worker)
            for action in leave(answers, targets, prices_of(self._controller), most):
                self._send(action, flights, emergency=False)

    def _on_their_way(self, worker: SimWorker) -> int:
        """Answers that are to leave it, and that have left and not arrived."""
        legs = [place.flight.leg for place in self._going.values()]
        legs += [place.flight.held for place, _ in self._arriving.values() if place.taken]
        return sum(leg is not None and leg.worker is worker for leg in legs)

    def _being_read(self, worker: SimWorker) -> int:
        """Blocks of answers that have left it: they are free in a moment."""
        held = [place.flight.held for place, _ in self._arriving.values() if place.taken]
        size = worker.pool.limits.block_size
        return sum(-(-leg.tokens // size) for leg in held if leg is not None and leg.worker is worker)

    @property
    def _controller(self) -> Controller:
        controller = self._ground.desk().controller
        assert controller is not None
        return controller

    def _forget(self) -> None:
        """Answers that ended, or lost their worker, while they were asked to leave, and those that lost their place after that."""
        for name, place in list(self._going.items()):
            if place.flight.leg is None or place.flight.leg.name != name:
                self._end(name, "ended")
        for index, (place, _) in list(self._arriving.items()):
            if not place.taken:
                del self._arriving[index]
                self._counts["lost"] += 1

    def _end(self, name: str, outcome: str) -> None:
        self._going.pop(name).give_back()
        self._counts[outcome] += 1

    def _even_out(self, workers: list[SimWorker], balance: Balance) -> None:
        fleet = self._ground.fleet
        standings = [
            Standing(worker.name, worker.pool.limits.blocks, fleet.settled(worker).scheduler.pool.used)
            for worker in workers
        ]
        for full, emptier in full_ones(standings, balance):
            source = fleet.worker(full.worker_id)
            flights = running_on(self._ground, source)
            answers = [answer for _, answer in flights.values()]
            others = [fleet.worker(one.worker_id) for one in emptier]
            targets = [target_of(self._ground, source, other, emergency=False) for other in others]
            action = even_out(full, emptier, targets, answers, prices_of(self._controller))
            self._send(action, flights, emergency=False)
            if action.moves:
                return

    def _ask(self, flight: Flight, target: SimWorker, *, emergency: bool) -> None:
        """The target's word, which comes back after the time that a call takes."""
        fleet, desk, leg, bid = self._ground.fleet, self._ground.desk(), flight.leg, flight.bid
        assert leg is not None
        assert bid.plan is not None
        generated = fleet.settled(leg.worker).total_tokens(leg.name) - flight.planned.demand.prompt_tokens
        plan = going_on(newest(bid.plan, self._controller.lengths), generated)
        asking = Bid(
            bid.request_id,
            plan.need,
            bid.prefix,
            desk.dispatch.arrive(),
            tenant=bid.tenant,
            priority=bid.priority,
            plan=plan,
            moves=True,
            emergency=emergency,
        )
        placement, ttl_s = Placement(target.name, Path.LOCAL, "moved"), self._ground.config.reservation_ttl_s
        name = f"{bid.request_id}-move"
        request = self._controller.reserve(asking, GATEWAY, name, ttl_s, placement, lambda: fleet.view(bid.prefix))
        reply = target.ledger.reserve(request, fleet.figures(target))
        if isinstance(reply, Refusal):
            self._counts["refused"] += 1
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
        flight.been |= {leg.worker.name}
        flight.carried += tokens - leg.tokens
        flight.ends(now_s, gaps)
        if flight.hold is not None:
            flight.hold.end(moves=True)
            flight.hold = None
        ground.unplug(flight, returned=False)
        leg.worker.ledger.release(flight.reservation)
        leg.tokens, leg.foreign = tokens - 1, True  # as many are computed, and nobody's reservation covers them
        leg.worker.foreign += 1
        flight.leg, flight.held, flight.decode = None, leg, place.worker
        flight.reservation = place.reservation
        if place.worker.epoch != place.epoch:
            self._counts["lost"] += 1
            flight.reservation = ""
            ground.drop(flight)
            ground.desk().enter(flight)
            return
        self._on(flight, leg)
        assert flight.leg is not None
        self._arriving[flight.planned.index] = place, flight.leg.name

    def first(self, flight: Flight, leg: Leg) -> None:
        """A decode leg's first token."""
        index = flight.planned.index
        if index not in self._arriving or not self._arriving[index][0].taken:
            return
        _, reading = self._arriving.pop(index)
        self._counts["moved" if leg.name == reading else "recomputed"] += 1
