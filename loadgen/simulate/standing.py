"""The simulated fleet and its running answers, as the policy of overruns and moves sees them: what `gateway.request.standing` is
to the live one."""

from gateway.policy.admission.move import By, Target, emergency_growth
from gateway.policy.admission.overrun import Answer, Prices
from gateway.policy.control.controller import Controller
from gateway.policy.prefill_choice import ASSUMED_PREFILL_TOKENS_PER_S
from loadgen.simulate.flight import Flight
from loadgen.simulate.ground import Ground
from loadgen.simulate.worker import SimWorker


def prices_of(controller: Controller) -> Prices:
    return Prices(controller.pace.prompt_tokens_per_s or ASSUMED_PREFILL_TOKENS_PER_S)


def target_of(ground: Ground, source: SimWorker, other: SimWorker, *, emergency: bool) -> Target:
    """The other one, with its room after growth, or in an emergency with its room now."""
    load = ground.fleet.load(other)
    link = ground.fleet.links_of(other.name).get(source.name)
    room = other.unpromised
    if emergency:
        shape = other.ledger.shape
        growth = emergency_growth(other.ledger.promised, shape.block_size_tokens)
        room = shape.blocks_total - other.ledger.committed(load) - growth
    return Target(other.name, room, link.bytes_per_s if link else 0.0)


def running_on(ground: Ground, worker: SimWorker) -> dict[str, tuple[Flight, Answer]]:
    """Its answers that decode, by leg. One that was preempted has nothing to take along."""
    engine, found = ground.fleet.settled(worker), dict[str, tuple[Flight, Answer]]()
    step_s = engine.busy_s / engine.steps if engine.steps else 0.0
    size, bytes_each = worker.pool.limits.block_size, worker.pool.profile.kv_bytes_per_token
    for flight in ground.flights.values():
        leg, plan = flight.leg, flight.bid.plan
        if leg is None or plan is None or leg.worker is not worker or leg.prefill or leg.first_s is None:
            continue
        if not ground.alive(leg) or not engine.decodes(leg.name):
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
        found[leg.name] = flight, answer
    return found
