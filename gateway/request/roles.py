"""Between the live fleet and the role policy: what happens to requests, and how long the engines' steps take."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import Self

from gateway.cluster.cluster import Cluster
from gateway.cluster.worker import Worker
from gateway.config import RoutingConfig
from gateway.policy.bid import Bid
from gateway.policy.control.rows import RolesRow
from gateway.policy.need import Need
from gateway.policy.roles import Aims, Fluid, Knobs
from gateway.policy.routing import Path, Placement
from gateway.request.step_limits import StepLimits
from proto.worker import StepTotals, WorkerState

#: Reason of a placement: the answer ran elsewhere.
MOVED = "moved"


class WayTaken(StrEnum):
    """How a prompt gets to its answer. A closed list, for metrics."""

    TOGETHER = "together"  # computed and decoded by the same worker
    HANDED = "handed"  # handed over after the first token
    HANDED_LATER = "handed_later"  # after several
    MOVED = "moved"  # from another decode worker, while its answer ran

    @classmethod
    def of(cls, placement: Placement) -> Self:
        if placement.reason == MOVED:
            return cls("moved")
        if placement.path is not Path.REMOTE:
            return cls("together")
        return cls("handed_later" if placement.first_tokens > 1 else "handed")


@dataclass(slots=True)
class Trip:
    """One prompt in the policy's books, from the moment a worker is asked for its place. Ending it twice is harmless."""

    roles: "Roles"
    key: str
    placement: Placement
    need: Need
    bid: Bid
    _begun: bool = False
    _over: bool = False

    @property
    def late(self) -> bool:
        """Not expected in time: its prompt goes behind those that are."""
        return self.roles.policy.late(self.key)

    def granted(self) -> None:
        self.roles.ways[WayTaken.of(self.placement)] += 1

    def computing(self, worker_id: str) -> None:
        """`worker_id` computes the prompt now: perhaps another one than was planned, or once more."""
        if self._over:
            return
        planned = self.placement.prefill_id or self.placement.worker_id
        if self._begun or worker_id != planned:
            here = worker_id == self.placement.worker_id
            path, other = (Path.LOCAL, "") if here else (Path.REMOTE, worker_id)
            self.placement = replace(self.placement, path=path, prefill_id=other)
            self.roles.enter(self, arrives=False)
        self._begun = True

    def prefilled(self) -> None:
        """Its first token is there."""
        self.roles.policy.prefilled(self.key)
        self.roles.limits.attend(self.placement.prefill_id or self.placement.worker_id)

    def read(self) -> None:
        """Its KV is read from where it is, and nothing is computed; if that fails, it is after all."""
        self._begun = True
        self.roles.policy.read(self.key)

    def moved(self) -> None:
        """It decodes where it was handed to."""
        self.roles.policy.moved(self.key)
        self.roles.limits.attend(self.placement.worker_id)

    def ended(self) -> None:
        if not self._over:
            self._over = True
            self.roles.policy.ended(self.key)


@dataclass(slots=True)
class Roles:
    """The policy of one gateway with its books kept. `ways` counts what was granted."""

    policy: Fluid
    cluster: Cluster
    clock: Callable[[], float]
    ways: Counter[WayTaken] = field(default_factory=Counter)
    limits: StepLimits = field(init=False)
    _states: dict[str, WorkerState] = field(default_factory=dict)
    _seen: dict[str, tuple[str, StepTotals]] = field(default_factory=dict)
    _look_s: float = 0.0

    def __post_init__(self) -> None:
        whole = self.policy.knobs
        own = Knobs(leans=whole.leans, first_tokens=whole.first_tokens)
        self.limits = StepLimits(self.policy, self.cluster, self.clock, self._read, own, whole)

    @classmethod
    def of(cls, config: RoutingConfig, cluster: Cluster, clock: Callable[[], float]) -> "Roles | None":
        """None where the configuration does not ask for fluid roles."""
        if (fluid := config.fluid) is None:
            return None
        knobs = Knobs(
            leans=not fluid.leaning,
            largest_step_tokens=fluid.chunk_tokens,
            smallest_chunk_tokens=fluid.chunk_tokens,
            late_share=inf,
            first_tokens=config.handoff_after_tokens,
        )
        policy = Fluid(Aims(fluid.ttft_ms / 1e3, fluid.tpot_ms / 1e3), clock, knobs)
        policy.leaning.update(fluid.leaning)
        roles = cls(policy, cluster, clock)
        cluster.subscribe(roles.look)
        return roles

    def take(self, bid: Bid, placement: Placement, *, arrives: bool) -> Trip:
        """A worker is being asked. It counts at once: others are placed before it has answered. `arrives` False: the
        prompt, or another of its request, has been asked for before."""
        trip = Trip(self, f"{bid.request_id}-{bid.arrival}", placement, bid.need, bid)
        self.enter(trip, arrives=arrives)
        return trip

    @property
    def row(self) -> RolesRow:
        law = self.policy.law
        ways = {way.value: self.ways[way] for way in WayTaken}
        steps = {name: tokens for name, (tokens, _) in sorted(self.limits.bounds.items())}
        return RolesRow(ways, tuple(sorted(self.policy.leaning)), law.weights_s, law.token_s, law.context_s, steps)

    def enter(self, trip: Trip, *, arrives: bool) -> None:
        placement = trip.placement
        worker = self.cluster.worker(placement.prefill_id or placement.worker_id)
        cached = worker.prefix.cached_tokens(trip.bid.prefix.hashes(worker.info.block_size_tokens)) if worker else 0
        self.policy.taken(trip.key, placement, trip.need, cached, arrives=arrives)
        self.limits.attend(placement.prefill_id or placement.worker_id)

    def look(self) -> None:
        """Reads the steps of every worker off its newest state; called whenever anything has changed."""
        now_s = self.clock()
        if now_s < self._look_s:
            return
        self._look_s = now_s + self.cluster.config.health.watch_interval_s / 2
        workers = self.cluster.workers()
        self._forget({worker.worker_id for worker in workers})
        for worker in workers:
            state = worker.state
            if state is not None and state is not self._states.get(worker.worker_id):
                self._states[worker.worker_id] = state
                self._read(worker, state.totals)
        self.limits.meet(workers)

    def _read(self, worker: Worker, totals: StepTotals) -> None:
        """Sums of its steps come by two ways, and may come the older ones last."""
        worker_id, epoch = worker.worker_id, worker.info.epoch
        known, before = self._seen.get(worker_id, ("", totals))
        if known == epoch and totals.count < before.count:
            return
        self._seen[worker_id] = epoch, totals
        if known == epoch:
            self.policy.book(worker_id).budget = self.limits.in_force(worker_id)
            self.policy.stepped(worker_id, totals.since(before))

    def _forget(self, known: set[str]) -> None:
        """Workers that come under ever new names must not be kept for ever."""
        if gone := self._seen.keys() - known:
            self.policy.forget(gone)
            for worker_id in gone - self.policy.books:
                del self._seen[worker_id]
                self._states.pop(worker_id, None)
