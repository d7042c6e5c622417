"""Random small fleets and traffic, drawn from one number."""

import random
from dataclasses import dataclass, replace
from functools import partial

from engine.simulated.host_memory import HostTier
from gateway.policy.control.controller import controller_of
from gateway.policy.roles import Aims, Fluid
from loadgen.demand import Demand
from loadgen.schedule import Schedule
from loadgen.simulate import Addition, Declared, Failure, Layout, RoleChange
from loadgen.simulate.layout import Overheads
from loadgen.simulate.worker import role_name
from proto.worker import Role
from tests.loadgen.simulate.build import closed, layout, opened


@dataclass(frozen=True, slots=True)
class Case:
    layout: Layout
    schedule: Schedule


def case(seed: int) -> Case:
    rng, rng_host = random.Random(seed), random.Random(f"host {seed}")
    prefill, decode, colocated = rng.choice(
        [(1, 1, 0), (2, 2, 0), (0, 0, 1), (0, 0, 3), (1, 1, 1), (2, 0, 2), (1, 3, 0)]
    )
    names = [f"{kind}-{n}" for kind, count in _pools(prefill, decode, colocated) for n in range(count)]
    changes: list[Failure | RoleChange | Addition] = []
    if rng.random() < 0.4:
        changes.append(Failure(rng.choice(names), rng.uniform(0.1, 1.5), rng.uniform(0.1, 2.0)))
    if rng.random() < 0.3:
        changes.append(RoleChange(rng.choice(names), Role.BOTH, rng.uniform(0.1, 1.5)))
    if rng.random() < 0.2:
        changes.append(Addition(Role.BOTH if colocated else Role.DECODE, 1, rng.uniform(0.1, 1.0)))
    one = layout(
        prefill,
        decode,
        colocated,
        blocks=rng.choice([60, 130, 200]),
        gateway={
            "admission": {"max_queued": rng.choice([3, 1024]), "default_output_tokens": rng.choice([20, 200])},
            "deadlines": {"queue_s": rng.choice([0.5, 60.0])},
            "routing": {"local_prefill_below_tokens": rng.choice([0, 16, 200])},
        },
        declared=rng.choice(list(Declared)),
        admission=rng.random() < 0.8,
        gpus_per_node=rng.choice([1, 8]),
        max_pulls=rng.choice([1, 16]),
        start_s=0.3,
        changes=tuple(changes),
        controller=controller_of if seed % 4 == 0 else None,
        roles=partial(Fluid, Aims(0.2, 0.02)) if seed % 3 == 1 else None,
        host=HostTier(rng_host.choice([5e5, 1e9]), rng_host.choice([1e8, 1e10])) if rng_host.random() < 0.4 else None,
    )
    demands = [_demand(rng) for _ in range(rng.randrange(1, 40))]
    if rng.random() < 0.3:
        return Case(one, closed(demands, rng.choice([1, 4, 50])))
    spread_s = rng.choice([0.0, 0.5, 3.0])
    return Case(one, opened(sorted(((rng.uniform(0, spread_s), d) for d in demands), key=lambda pair: pair[0])))


def _pools(prefill: int, decode: int, colocated: int) -> list[tuple[str, int]]:
    return [("prefill", prefill), ("decode", decode), ("colocated", colocated)]


def _demand(rng: random.Random) -> Demand:
    prompt, output = rng.choice([16, 100, 512, rng.randrange(1, 900)]), rng.choice([1, 2, rng.randrange(1, 300)])
    return Demand(
        prompt,
        output,
        prefix=tuple(rng.choice([(), (1, 2, 3), (1, 2), (7,)])),
        block_tokens=64,
        patience_s=rng.choice([None, None, None, 0.2]),
        leave_after_tokens=rng.choice([None, None, None, 5]),
    )


def harsh(seed: int) -> Case:
    """The same with short deadlines, calls that take longer than they allow, paced turns, and workers that die often."""
    drawn, rng = case(seed), random.Random(f"harsh {seed}")
    one, schedule = drawn.layout, drawn.schedule
    names = [n for pool in one.pools for n in _names(pool.role, pool.workers)]
    dies = [Failure(rng.choice(names), rng.uniform(0, 2), rng.choice([0.001, 0.7])) for _ in range(rng.randrange(5))]
    turns = [RoleChange(rng.choice(names), rng.choice(list(Role)), rng.uniform(0, 2)) for _ in range(rng.randrange(3))]
    deadlines = one.gateway.deadlines.model_copy(
        update={
            "queue_s": rng.choice([0.0015, 0.05, 60.0]),
            "prefill_s": rng.choice([0.01, 60.0]),
            "first_token_s": rng.choice([0.003, 60.0]),
        }
    )
    each_s = rng.choice([0.0, 0.001, 0.01])
    paced = [
        replace(planned, after=rng.randrange(planned.index) if planned.index and rng.random() < 0.3 else None)
        for planned in schedule.requests
    ]
    changed = replace(
        one,
        gateway=one.gateway.model_copy(update={"deadlines": deadlines}),
        overheads=Overheads(each_s, each_s, each_s),
        client_timeout_s=rng.choice([0.3, 600.0, float("inf")]),
        changes=(*one.changes, *dies, *turns),
    )
    return Case(changed, replace(schedule, requests=tuple(paced)))


def _names(role: Role, workers: int) -> list[str]:
    return [f"{role_name(role)}-{n}" for n in range(workers)]
