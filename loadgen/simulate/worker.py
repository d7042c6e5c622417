"""One worker as its own account, its engine's limits, and what the gateway believes of it."""

import math
from collections.abc import Callable

from decode_pool.ledger import Hold, Load, Shape
from decode_pool.pulls import PullGate
from engine.simulated.virtual import VirtualEngine
from gateway.policy.prefix import PrefixIndex
from gateway.policy.routing import DecodeCandidate, PrefillCandidate
from gateway.policy.standing import Door, PrefillSpeed
from loadgen.simulate.layout import Policies, Pool
from proto.worker import Role

#: More than any request can want: a worker without admission control.
_BOUNDLESS = 1 << 40


class SimWorker:
    """`excess` are blocks in use beyond what is reserved, as last looked at; 0 where that cannot be. `stale`: it has said
    how it is since, and nobody has looked.

    Beyond its reservations an engine can hold blocks of answers that outgrew theirs (`overrun`), and of prompts that
    it computes for other workers (`foreign`).
    """

    def __init__(
        self,
        name: str,
        pool: Pool,
        node: int,
        policies: Policies,
        clock: Callable[[], float],
        *,
        admission: bool,
        max_pulls: int,
    ) -> None:
        self.name = name
        self.pool = pool
        self.node = node
        self.role = pool.role
        self.up = True
        self.lost_s: float | None = None
        self.epoch = 0
        self.door = Door()
        self.speed = PrefillSpeed()
        self.outstanding_tokens = 0
        self.foreign = 0
        self.excess = 0
        self.stale = False
        self.overrun: dict[str, Hold] = {}
        self._policies = policies
        self._clock = clock
        self._admission = admission
        self._max_pulls = max_pulls
        self._decode: DecodeCandidate | None = None
        self._prefill: PrefillCandidate | None = None
        self.renew()

    def renew(self) -> None:
        """A new epoch: nothing of the old one counts."""
        limits = self.pool.limits
        self.epoch += 1
        blocks = limits.blocks if self._admission else _BOUNDLESS
        slots = limits.max_num_seqs if self._admission else _BOUNDLESS
        shape = Shape(blocks, limits.block_size, slots, limits.max_model_len)
        self.ledger = self._policies.ledger(shape, self._clock, f"{self.name}-{self.epoch}")
        self.gate = PullGate(self._max_pulls)
        self.prefix = PrefixIndex(limits.blocks, limits.block_size)
        self.outstanding_tokens = self.foreign = self.excess = 0
        self.stale = False
        self.overrun.clear()
        self._steps, self._busy_s, self._step_s = 0, 0.0, 0.0

    @property
    def exact(self) -> bool:
        """Whether nothing but reservations can be in use."""
        return not self.overrun and not (self.foreign and self.role.decodes)

    @property
    def unpromised(self) -> int:
        """Blocks that a gateway may still count on."""
        return self.ledger.shape.blocks_total - self.ledger.reserved_blocks - self.excess

    def load(self, engine: VirtualEngine) -> Load:
        """What the worker would say of its engine, which must be settled."""
        total = engine.total_tokens
        for name, hold in self.overrun.items():
            grown = total(name) - hold.tokens
            if grown > 0:
                hold.advance(grown)
        scheduler = engine.scheduler
        if not self._admission:
            return Load()
        if engine.steps > self._steps:
            self._step_s = (engine.busy_s - self._busy_s) / (engine.steps - self._steps)
            self._steps, self._busy_s = engine.steps, engine.busy_s
        running = len(scheduler.running) + scheduler.waiting_count
        return Load(scheduler.pool.used, running, self.foreign > 0, self._step_s)

    def reckon(self, load: Load) -> None:
        """Brings `excess` up to date; `load` are the engine's figures of this moment."""
        taken = max(self.ledger.committed(load), math.ceil(self.ledger.promised_blocks(load)))
        self.excess, self.stale = max(0, taken - self.ledger.reserved_blocks), False

    def as_decode(self, cached_tokens: int, now_s: float) -> DecodeCandidate:
        """The same object as long as nothing has changed."""
        shape = self.ledger.shape
        free = self.unpromised
        closed = self.door.closed(now_s)
        known = self._decode
        if (
            known is not None
            and known.blocks_free == free
            and known.cached_tokens == cached_tokens
            and known.closed is closed
            and known.role is self.role
        ):
            return known
        self._decode = DecodeCandidate(
            worker_id=self.name,
            role=self.role,
            window=shape.max_model_len,
            block_size_tokens=shape.block_size_tokens,
            blocks_total=shape.blocks_total,
            blocks_free=free,
            slots_total=shape.slots_total,
            cached_tokens=cached_tokens,
            closed=closed,
            kv_tokens=self.pool.limits.blocks * shape.block_size_tokens,
        )
        return self._decode

    def as_prefill(self) -> PrefillCandidate:
        known, speed = self._prefill, self.speed.tokens_per_s
        if (
            known is None
            or known.outstanding_tokens != self.outstanding_tokens
            or known.tokens_per_s != speed
            or known.role is not self.role
        ):
            known = self._prefill = PrefillCandidate(self.name, self.role, self.outstanding_tokens, speed)
        return known


def role_name(role: Role) -> str:
    """As workers are called under `tandem up`."""
    return {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.BOTH: "colocated"}[role]
