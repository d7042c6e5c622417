"""What is simulated: pools of workers on nodes, the gateway's settings, and the policies to plug in."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from decode_pool.ledger import Ledger, Shape
from decode_pool.service import DecodeLimits
from engine.simulated.cost import Profile
from engine.simulated.host_memory import HostMemory, HostTier
from engine.simulated.limits import Limits
from engine.simulated.setup import limits_of
from gateway.config import GatewayConfig
from gateway.policy.admission import FifoQueue
from gateway.policy.bid import Line
from gateway.policy.control.controller import Controller
from gateway.policy.control.plan import needed
from gateway.policy.dispatch import Objection
from gateway.policy.need import Need
from gateway.policy.prefill_choice import choose_prefill
from gateway.policy.roles import Fluid
from gateway.policy.routing import Links, Place, PrefillCandidate, place
from loadgen.arms.virtual import Simulated
from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.schedule import Schedule
from loadgen.simulate.changes import Addition, Change
from loadgen.simulate.precision import precision_notes
from proto.worker import Role

if TYPE_CHECKING:
    from loadgen.simulate.flight import Flight

#: GPUs that share NVLink.
GPUS_PER_NODE = 8

#: From asking for a worker until it serves; assumed.
START_S = 60.0


class Declared(StrEnum):
    """What clients say of the length of their answers."""

    EXACT = "exact"  # max_tokens is the planned length, as the load generator's own client sends
    NONE = "none"  # nothing: the gateway counts on its default


@dataclass(frozen=True, slots=True)
class Pool:
    """`workers` engines of one kind."""

    role: Role
    workers: int
    profile: Profile
    limits: Limits
    kv_lease_s: float = 30.0

    @classmethod
    def of(cls, role: Role, workers: int, profile: Profile) -> "Pool":
        return cls(role, workers, profile, limits_of(profile))

    def host_memory(self, tier: HostTier | None) -> HostMemory | None:
        """Of one engine; none where it keeps no cache."""
        if tier is None or not self.limits.caching:
            return None
        size = self.limits.block_size
        return HostMemory(tier, self.profile.cost, size, size * self.profile.kv_bytes_per_token)

    @property
    def gpus_each(self) -> int:
        return self.profile.tp * self.profile.pp


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds that the gateway adds to one request: asking for KV, and sending each leg. Assumed, not measured."""

    reserve_s: float = 0.001
    prefill_s: float = 0.001
    decode_s: float = 0.001


#: prompt tokens, KV bytes per token, candidates, links, workers to avoid -> worker
ChoosePrefill = Callable[[int, int, Collection[PrefillCandidate], Links, Collection[str]], str | None]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the gateway knows when it sizes a reservation. `declared` is None where the client said nothing."""

    demand: Demand
    declared: int | None
    default_output_tokens: int
    window: int
    kv_tokens: int


def declared_or_default(known: Estimate) -> Need:
    """As the gateway does it."""
    limit = known.declared or max(1, known.window - known.demand.prompt_tokens)
    return needed(
        known.demand.prompt_tokens,
        1,
        limit,
        declared=known.declared is not None,
        default_output_tokens=known.default_output_tokens,
        window=known.window,
        kv_tokens=known.kv_tokens,
    )


def fifo(limit: int) -> "Line[Flight]":
    return FifoQueue(limit)


@dataclass(frozen=True, slots=True)
class Policies:
    """The gateway's policies, each replaceable.

    `line` makes the queue from its limit; `need` sizes a reservation; `lengths`, where it is not empty, lets the worker
    decide by forecast (see `ReserveRequest`); `ledger` makes a decode worker's account, which grants or refuses; `place` chooses the decode worker and the path; `choose_prefill` the prefill worker. `ended` is
    told of every answer that ended: what was asked, how long the answer got, whether it came to its own end.
    `objection` is asked before a prompt is computed, where there is no controller; `thrown_away` once it is and could
    move on to decode. The gateway has nothing like the latter: what is computed has its place. It is there for comparing.
    """

    line: "Callable[[int], Line[Flight]]" = fifo
    need: Callable[[Estimate], Need] = declared_or_default
    lengths: Callable[[Estimate], tuple[int, ...]] = lambda known: ()
    ledger: Callable[[Shape, Callable[[], float], str], Ledger] = Ledger
    place: Place = place
    choose_prefill: ChoosePrefill = choose_prefill
    ended: Callable[[Demand, int, bool], None] = lambda demand, output_tokens, finished: None
    objection: Objection = lambda bid, fleet, waiting, admitted_per_s: None
    thrown_away: "Callable[[Flight], bool]" = lambda flight: False


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything that a simulation needs beside the schedule.

    `admission` False leaves out all control: workers grant whatever is asked and engines queue and preempt on their
    own. `controller` makes the gateway's whole policy from its configuration (estimates, forecast reservations, the fair
    line, limits, early rejection); it then goes before `line`, `need` and `lengths`. `roles` makes the policy of fluid roles from
    a clock; it then goes before `place` and `choose_prefill`. `transport` forces one kind of link. `start_s` is how long an added worker takes until it serves (assumed).
    `changes` happen while the simulation runs. `gaps`: answers know those between their tokens. `host` is memory beside each engine. `closed_form` False takes every step singly (for tests).
    """

    pools: tuple[Pool, ...]
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    words: str = ""
    policies: Policies = field(default_factory=Policies)
    controller: Callable[[GatewayConfig, Callable[[], float]], Controller] | None = None
    roles: Callable[[Callable[[], float]], Fluid] | None = None
    overheads: Overheads = field(default_factory=Overheads)
    declared: Declared = Declared.EXACT
    admission: bool = True
    gpus_per_node: int = GPUS_PER_NODE
    transport: str = ""
    max_pulls: int = DecodeLimits().max_pulls
    start_s: float = START_S
    client_timeout_s: float = 600.0
    changes: tuple[Change, ...] = ()
    gaps: bool = True
    host: HostTier | None = None
    closed_form: bool = True

    def __post_init__(self) -> None:
        for pool in self.pools:
            self._check_group(pool)
        for change in self.changes:
            if isinstance(change, Addition):
                self.pool_of(change)

    def _check_group(self, pool: Pool) -> None:
        """The ranks of a table exchange inside a node: a group that leaves it must say over what. Raises LoadgenError."""
        tp = pool.profile.tp
        if tp > self.gpus_per_node and not pool.profile.group_link:
            raise LoadgenError(
                f"TP{tp} does not fit a node of {self.gpus_per_node} GPUs, and its table is that of one node; "
                f"say what its ranks exchange over, in GB/s: --profile '{pool.profile.name}?link=50'"
            )

    @property
    def gpus(self) -> float:
        """All that the layout ever has: those added later too, so that goodput per GPU flatters no addition."""
        added = [change for change in self.changes if isinstance(change, Addition)]
        return float(
            sum(pool.workers * pool.gpus_each for pool in self.pools)
            + sum(change.count * self.pool_of(change).gpus_each for change in added)
        )

    def pool_of(self, addition: Addition) -> Pool:
        """The pool that grows. Raises LoadgenError where there is none of that role."""
        for pool in self.pools:
            if pool.role is addition.role:
                return pool
        roles = ", ".join(pool.role.value for pool in self.pools)
        raise LoadgenError(f"--add: no {addition.role.value} pool to take the kind of worker from; there are {roles}")

    @property
    def model(self) -> str:
        return self.pools[0].profile.model

    @property
    def description(self) -> str:
        if self.words:
            return self.words
        parts = [
            f"{pool.workers} {pool.role.value} of {pool.profile.name} tp={pool.profile.tp} pp={pool.profile.pp}"
            for pool in self.pools
        ]
        return ", ".join(parts)

    def simulate(self, schedule: Schedule) -> Simulated:
        """As the arm of a run or a comparison."""
        from loadgen.simulate.experts import expert_notes
        from loadgen.simulate.simulation import simulate

        outcome = simulate(self, schedule)
        asked = (planned.demand for planned in schedule.requests)
        notes = (*outcome.notes, *precision_notes(asked, [pool.profile for pool in self.pools]))
        notes += expert_notes(outcome, [(pool.role, pool.profile) for pool in self.pools])
        return Simulated(outcome.results, outcome.telemetry, notes, self.model)
