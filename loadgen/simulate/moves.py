"""Running answers that go on at another worker, in virtual time: the gateway's policy, the engines' hand-over (R-08, R-26)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from engine.simulated.gaps import Gaps
from gateway.policy.admission.balance import Standing, even_out, full_ones
from gateway.policy.admission.drain import AT_ONCE, leave
from gateway.policy.admission.move import By, Target, emergency_growth
from gateway.policy.admission.overrun import (
    LEAVING_STEPS,
    Answer,
    OverrunPolicy,
    Pressure,
    Prices,
    Response,
    decide,
    gained_blocks,
)
from gateway.policy.control.going_on import going_on, newest
from gateway.policy.dispatch import Bid
from gateway.policy.prefill_choice import ASSUMED_PREFILL_TOKENS_PER_S
from gateway.policy.routing import Path, Placement
from loadgen.simulate.changes import RoleChange
from loadgen.simulate.desk import GATEWAY
from loadgen.simulate.flight import Flight, Leg
from loadgen.simulate.ground import Ground
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
        if not self._going:
            self._even_out(workers)
        self._later()

    def _may_be_short(self, worker: SimWorker) -> bool:
        """Said without taking the steps until now, which would cost more than all else here: since its last news the engine's
        answers have done nothing but grow, at most so fast."""
        fleet, limits = self._ground.fleet, worker.pool.limits
        engine, least_s = fleet.engines.engines[worker.name], worker.pool.profile.cost.step_s(1, 0)
        seconds = fleet.now_s - engine.now_s + self._ground.config.health.watch_interval_s
        each = (1.0 + seconds / least_s + LEAVING_STEPS) / limits.block_size + 1.0
        return engine.scheduler.pool.used + each * len(engine.scheduler.running) > limits.blocks

    def _relieve(self, worker: SimWorker, workers: list[SimWorker]) -> None:
        """As many as it takes, and no more before these have gone."""
        fleet, ledger = self._ground.fleet, worker.ledger
        engine, limits = fleet.settled(worker), worker.pool.limits
        used, running = engine.scheduler.pool.used, len(engine.scheduler.running)
        step_s, look_s = engine.busy_s / max(1, engine.steps), self._ground.config.health.watch_interval_s
        growth = gained_blocks(running, step_s, look_s, limits.block_size)
        leaving = any(place.flight.leg and place.flight.leg.worker is worker for place in self._going.values())
        used -= self._being_read(worker)
        if leaving or used + growth <= limits.blocks:
            return
        answers = self._running(worker)
        pressure = Pressure(
            blocks_total=limits.blocks,
            pool_blocks=ledger.expected.budget.pool_blocks,
            held_blocks=used,
            growth_blocks=growth,
            answers=[answer for _, answer in answers],
            targets=[self._target(worker, other, emergency=True) for other in workers if other is not worker],
        )
        action = decide(pressure, self._yields, self._prices)
        flights = {answer.request_id: flight for flight, answer in answers}
        for move in action.moves:
            self._ask(flights[move.request_id], fleet.worker(move.worker_id), emergency=True)

    def _empty(self, workers: list[SimWorker]) -> None:
        """Workers that decode no more, and still have answers."""
        fleet = self._ground.fleet
        for worker in fleet.workers.values():
            if not worker.up or worker.role.decodes or not worker.ledger.reservations:
                continue
            asked = {place.flight.planned.index for place in self._going.values()}
            running = [each for each in self._running(worker) if each[0].planned.index not in asked]
            targets = [self._target(worker, other, emergency=False) for other in workers]
            flights = {answer.request_id: flight for flight, answer in running}
            most = AT_ONCE - self._on_their_way(worker)
            for action in leave([answer for _, answer in running], targets, self._prices, most):
                for move in action.moves:
                    self._ask(flights[move.request_id], fleet.worker(move.worker_id), emergency=False)

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
    def _prices(self) -> Prices:
        controller = self._ground.desk().controller
        assert controller is not None
        return Prices(controller.pace.prompt_tokens_per_s or ASSUMED_PREFILL_TOKENS_PER_S)

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

    def _even_out(self, workers: list[SimWorker]) -> None:
        fleet, controller = self._ground.fleet, self._ground.desk().controller
        assert controller is not None
        balance = controller.balance
        standings = [
            Standing(worker.name, worker.pool.limits.blocks, fleet.settled(worker).scheduler.pool.used)
            for worker in workers
        ]
        for full, emptier in full_ones(standings, balance) if balance else ():
            source = fleet.worker(full.worker_id)
            running = self._running(source)
            flights = {answer.request_id: flight for flight, answer in running}
            answers = [answer for _, answer in running]
            targets = [self._target(source, fleet.worker(one.worker_id), emergency=False) for one in emptier]
            moves = even_out(full, emptier, targets, answers, self._prices).moves
            for move in moves:
                self._ask(flights[move.request_id], fleet.worker(move.worker_id), emergency=False)
            if moves:
                return

    def _target(self, source: SimWorker, other: SimWorker, *, emergency: bool) -> Target:
        load = self._ground.fleet.load(other)
        link = self._ground.fleet.links_of(other.name).get(source.name)
        room = other.unpromised
        if emergency:
            shape = other.ledger.shape
            growth = emergency_growth(other.ledger.promised, shape.block_size_tokens)
            room = shape.blocks_total - other.ledger.committed(load) - growth
        return Target(other.name, room, link.bytes_per_s if link else 0.0)

    def _running(self, worker: SimWorker) -> list[tuple[Flight, Answer]]:
        engine, found = self._ground.fleet.settled(worker), []
        step_s = engine.busy_s / engine.steps if engine.steps else 0.0
        size, bytes_each = worker.pool.limits.block_size, worker.pool.profile.kv_bytes_per_token
        for flight in list(self._ground.flights.values()):
            leg, plan = flight.leg, flight.bid.plan
            if leg is None or plan is None or leg.worker is not worker or leg.prefill or leg.first_s is None:
                continue
            if not self._ground.alive(leg) or not engine.decodes(leg.name):
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
                flight.been,
            )
            found.append((flight, answer))
        return found

    def _ask(self, flight: Flight, target: SimWorker, *, emergency: bool) -> None:
        """The target's word, which comes back after the time that a call takes."""
        fleet, desk, leg, bid = self._ground.fleet, self._ground.desk(), flight.leg, flight.bid
        assert leg is not None
        assert bid.plan is not None
        assert desk.controller is not None
        generated = fleet.settled(leg.worker).total_tokens(leg.name) - flight.planned.demand.prompt_tokens
        plan = going_on(newest(bid.plan, desk.controller.lengths), generated)
        asking = Bid(
            bid.request_id,
            plan.need,
            bid.prefix,
            desk.dispatch.arrive(),
            tenant=bid.tenant,
            priority=bid.priority,
            plan=plan,
            emergency=emergency,
        )
        placement, ttl_s = Placement(target.name, Path.LOCAL, "moved"), self._ground.config.reservation_ttl_s
        name = f"{bid.request_id}-move"
        request = desk.controller.reserve(asking, GATEWAY, name, ttl_s, placement, lambda: fleet.view(bid.prefix))
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
            flight.hold.end(finished=False)  # of its length this says nothing
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
