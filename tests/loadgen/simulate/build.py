"""Small layouts and schedules with round figures."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.simulated.cost import Link, Profile, load_profile
from engine.simulated.cost.linear import LinearCost
from gateway.config import GatewayConfig
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.demand import Demand
from loadgen.schedule import Planned, Schedule
from loadgen.simulate import Layout, Overheads, Pool
from loadgen.simulate.simulation import Simulation
from proto.worker import Role

BLOCK = 16
COST = LinearCost(base_s=1e-3, token_s=1e-5, context_token_s=1e-7)
LINK = Link(bytes_per_s=1e9, latency_s=1e-3)


def profile(blocks: int = 200, **changes: Any) -> Profile:
    small = replace(
        load_profile("toy"),
        cost=COST,
        blocks_total=blocks,
        max_model_len=2048,
        max_num_seqs=16,
        max_num_batched_tokens=512,
        kv_bytes_per_token=10_000,
        links={"nvlink": LINK, "rdma": Link(1e8, 2e-3)},
    )
    return replace(small, **changes)


def layout(
    prefill: int = 0, decode: int = 0, colocated: int = 0, *, blocks: int = 200, gateway: Any = None, **more: Any
) -> Layout:
    counts = ((Role.PREFILL, prefill), (Role.DECODE, decode), (Role.BOTH, colocated))
    pools = tuple(Pool.of(role, count, profile(blocks)) for role, count in counts if count)
    return Layout(pools, GatewayConfig.model_validate(gateway or {}), **more)


def free_of_overheads(one: Layout) -> Layout:
    return replace(one, overheads=Overheads(0.0, 0.0, 0.0))


def opened(demands: Sequence[tuple[float, Demand]]) -> Schedule:
    planned = tuple(Planned(n, at_s, demand) for n, (at_s, demand) in enumerate(demands))
    return Schedule(planned, max((at_s for at_s, _ in demands), default=0.0), Arrivals(), 0)


def closed(demands: Sequence[Demand], concurrency: int) -> Schedule:
    planned = tuple(Planned(n, 0.0, demand) for n, demand in enumerate(demands))
    return Schedule(planned, 0.0, Arrivals(Kind.CLOSED, concurrency=concurrency), 0)


def nothing_left(simulation: Simulation) -> None:
    """Every account is at zero: engines, ledgers, gates, links, queue, legs."""
    fleet = simulation.fleet
    for name, worker in fleet.workers.items():
        engine = fleet.engines.engines[name]
        assert engine.scheduler.pool.used == 0, name
        assert not engine.scheduler.running
        assert not engine.scheduler.waiting_count
        assert (worker.ledger.reserved_blocks, worker.ledger.reservations) == (0, 0), name
        assert (worker.gate.under_way, worker.gate.waiting) == (0, 0), name
        assert (worker.outstanding_tokens, worker.foreign, dict(worker.overrun)) == (0, 0, {}), name
    assert not len(fleet.engines.network)
    assert not len(simulation.desk.dispatch)
    assert simulation.legs.under_way == 0
    assert not simulation.clients.under_way
    if fleet.roles is not None:
        for name in fleet.workers:
            book = fleet.roles.policy.book(name)
            assert (len(book.backlog), book.answers, book.coming) == (0, 0, 0), name
