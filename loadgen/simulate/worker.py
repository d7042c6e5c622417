"""One worker as its own account, its engine's limits, and what the gateway believes of it."""

import math
from collections.abc import Callable

from decode_pool.ledger import Hold, Ledger, Load, Shape
from decode_pool.pulls import PullGate
from engine.simulated.virtual import VirtualEngine
from gateway.policy.prefix import BlockHashes, PrefixIndex
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
    it computes for other workers (`foreign`). `touched` is called when something has changed that the gateway sees.
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
        self.touched: Callable[[], None] = _nobody_looks
        self.renew()

    def renew(self) -> None:
        """A new epoch: nothing of the old one counts."""
        limits = self.pool.limits
        self.epoch += 1
        blocks = limits.blocks if self._admission else _BOUNDLESS
        slots = limits.max_num_seqs if self._admission else _BOUNDLESS
        shape = Shape(blocks, limits.block_size, slots, limits.max_model_len)
        self._ledger = self._policies.ledger(shape, self._clock, f"{self.name}-{self.epoch}")
        self.gate = PullGate(self._max_pulls)
        self.prefix = PrefixIndex(limits.blocks, limits.block_size)
        self.outstanding_tokens = self.foreign = self.excess = 0
        self.stale = False
        self.overrun.clear()
        self._steps, self._busy_s, self._step_s = 0, 0.0, 0.0

    @property
    def ledger(self) -> Ledger:
        """Whoever asks for it may change what is promised; whoever keeps it across other calls says so."""
        self.touched()
        return self._ledger

    @property
    def exact(self) -> bool:
        """Whether nothing but reservations can be in use."""
        return not self.overrun and not (self.foreign and self.role.decodes)

    @property
    def unpromised(self) -> int:
        """Blocks that a gateway may still count on."""
        return self._ledger.shape.blocks_total - self._ledger.reserved_blocks - self.excess

    def load(self, engine: VirtualEngine) -> Load:
        """What the worker would say of its engine, which must be settled."""
        self.touched()
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
        ledger = self.ledger
        taken = max(ledger.committed(load), math.ceil(ledger.promised_blocks(load)))
        self.excess, self.stale = max(0, taken - ledger.reserved_blocks), False

    def nothing_beyond(self) -> None:
        """No more in use than is reserved."""
        self.excess, self.stale = 0, False
        self.touched()

    def heard(self) -> None:
        """It says how it is. Where reservations do not tell everything, that is reckoned when somebody looks."""
        self.stale = not self.exact
        self.door.changed()
        self.touched()

    def refused(self, now_s: float) -> None:
        self.door.refused(now_s)
        self.touched()

    def says(self, known: PrefillCandidate) -> bool:
        """Whether a prompt's worker is still what was known of it."""
        return known.outstanding_tokens == self.outstanding_tokens and known.tokens_per_s == self.speed.tokens_per_s

    def prompt_sent(self, tokens: int) -> None:
        self.outstanding_tokens += tokens
        self.touched()

    def prompt_over(self, tokens: int) -> None:
        self.outstanding_tokens -= tokens
        self.touched()

    def computed(self, tokens: int, seconds: float, now_s: float) -> None:
        """A leg tells how fast prompts are here."""
        self.speed.measured(tokens, seconds, now_s)
        self.touched()

    def cached_tokens(self, prefix: BlockHashes) -> int:
        """Tokens of the prompt that the worker is believed to have."""
        known = self.prefix
        return known.cached_tokens(prefix.hashes(known.block_size_tokens)) if len(known) else 0

    def as_decode(self, now_s: float) -> DecodeCandidate:
        """With nothing cached."""
        shape = self._ledger.shape
        return DecodeCandidate(
            worker_id=self.name,
            role=self.role,
            window=shape.max_model_len,
            block_size_tokens=shape.block_size_tokens,
            blocks_total=shape.blocks_total,
            blocks_free=self.unpromised,
            slots_total=shape.slots_total,
            closed=self.door.closed(now_s),
            kv_tokens=self.pool.limits.blocks * shape.block_size_tokens,
            engine_slots=self.pool.limits.max_num_seqs,
        )

    def as_prefill(self) -> PrefillCandidate:
        return PrefillCandidate(self.name, self.role, self.outstanding_tokens, self.speed.tokens_per_s)


def _nobody_looks() -> None:
    pass


def role_name(role: Role) -> str:
    """As workers are called under `tandem up`."""
    return {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.BOTH: "colocated"}[role]
