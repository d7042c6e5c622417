"""The worker's own account of its KV: what is promised to whom, in blocks. Pure but for an injected clock."""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

from decode_pool.expected import Admission, Expected
from decode_pool.grant import Charge, Grant
from decode_pool.hold import Hold
from gateway.policy.admission import Candidate, Outlook, Verdict
from gateway.policy.admission.pool import PoolReport
from proto.reservation import Refusal, RefusalReason, Reservation, ReserveRequest
from transfer.ticket import blocks_for

__all__ = ["MAX_TTL_S", "Hold", "Ledger", "Load", "Shape"]

log = logging.getLogger(__name__)

#: No gateway can hold KV idle for longer than this, whatever it asks for, unless it renews. The grant says so.
MAX_TTL_S = 600.0


@dataclass(frozen=True, slots=True)
class Shape:
    """What a worker has to give."""

    blocks_total: int
    block_size_tokens: int
    slots_total: int
    max_model_len: int


@dataclass(frozen=True, slots=True)
class Load:
    """The engine's own figures. `foreign`: it also runs work that has no reservation here (a `both` worker).

    `step_time_s`: of a decode step, 0 while not known.
    """

    blocks_used: int = 0
    sequences: int = 0
    foreign: bool = False
    step_time_s: float = 0.0


class Ledger:
    """Every grant has one gateway, a deadline while it is unused, and one way out.

    A request with a length estimate is granted by what all such requests, of all gateways, may come to hold at any
    future step (`expected`); one without is granted its declared growth in full.
    """

    def __init__(
        self, shape: Shape, clock: Callable[[], float], name: str = "", admission: Admission | None = None
    ) -> None:
        self.shape = shape
        self.expected = Expected(
            shape.blocks_total, shape.block_size_tokens, shape.max_model_len, admission or Admission()
        )
        self.freed: Callable[[], None] = lambda: None  # called when a grant is charged less than before
        self._clock = clock
        self._name = name
        self._numbers = count(1)
        self._grants: dict[str, Grant] = {}
        self._unused: dict[str, Grant] = {}  # grants under which nothing runs
        self._abandoned: dict[str, float] = {}
        self.reserved_blocks = 0
        self._certain_blocks = 0  # of the reserved ones, those outside of the forecast
        self._waiting_blocks = 0  # of the others, those that wait for their KV
        self._promised = 0
        self.outgrown = 0
        self._capped = False
        self.expired = 0

    @property
    def reservations(self) -> int:
        return len(self._grants)

    @property
    def live(self) -> int:
        """Sequences that run under a reservation."""
        return sum(len(grant.live) for grant in self._grants.values())

    @property
    def promised(self) -> int:
        """Sequences that run or may be started."""
        return self._promised

    def recounted(self) -> int:
        """`reserved_blocks` from first principles, for the integrity check."""
        return sum(grant.blocks for grant in self._grants.values())

    def needed(self, request: ReserveRequest) -> int:
        """Blocks for the prompt, once, and for each answer's part of the growth."""
        shared, share = self._split(request)
        return shared + share * max(1, request.sequences)

    def committed(self, load: Load) -> int:
        """Blocks that are not free to promise: the larger of what the engine uses and what is reserved (B-54).

        Where work without reservations shares the engine, what reserved sequences do not hold of the engine's use is
        that work's, and comes on top of the reserved.
        """
        foreign = max(0, load.blocks_used - self._held()) if load.foreign else 0
        return max(load.blocks_used, self.reserved_blocks + foreign)

    def certain_blocks(self, load: Load) -> int:
        """Committed, whatever becomes of the answers that are forecast: reserved in full, or used by others."""
        foreign = max(0, load.blocks_used - self._held()) if load.foreign else 0
        filled = self.reserved_blocks - self._certain_blocks - self._waiting_blocks
        return max(self._certain_blocks + foreign, load.blocks_used - filled)

    def outlook(self, load: Load) -> Outlook:
        """What may be held at the worst future step, beside `certain_blocks`."""
        self.expected.keep_step(self._running())
        return self.expected.outlook(self.certain_blocks(load))

    def promised_blocks(self, load: Load) -> float:
        """All that is promised: in full, and by the forecast within the error budget. 0 at idle."""
        return self.certain_blocks(load) + self.outlook(load).peak_blocks

    def pool_report(self, load: Load) -> PoolReport:
        """The emergency pool's use and price until now."""
        self.expected.pool.observe(self.pool_blocks_used(load), self._clock())
        return self.expected.pool.report()

    def pool_blocks_used(self, load: Load) -> int:
        """How much of the emergency pool is taken by what answers really hold."""
        pool = self.expected.budget.pool_blocks
        held = max(load.blocks_used, self.reserved_blocks - self._waiting_blocks)
        return min(pool, max(0, held - (self.shape.blocks_total - pool)))

    def reserve(self, request: ReserveRequest, load: Load) -> Reservation | Refusal:
        self.expire()
        self.expected.keep_step(self._running())
        candidate = self.expected.candidate(request, load.step_time_s)
        if candidate is None:
            return self._reserve_in_full(request, load)
        return self._reserve_by_forecast(request, candidate, load)

    def _reserve_in_full(self, request: ReserveRequest, load: Load) -> Reservation | Refusal:
        needed = self.needed(request)
        reason = self._objection(request, needed, load)
        if reason is None and len(self.expected) and self.outlook(load).headroom_blocks < needed:
            reason = RefusalReason.KV_BUSY
        if reason is not None:
            return self.refusal(reason, request, load)
        grant = self._grant(request)
        return Reservation(grant.reservation_id, needed, grant.ttl_s)

    def _reserve_by_forecast(self, request: ReserveRequest, candidate: Candidate, load: Load) -> Reservation | Refusal:
        decision = self.expected.decide(candidate, self.certain_blocks(load))
        shared, share = self._split(request, forecast=True)
        reason: RefusalReason | None = RefusalReason.NEVER_FITS
        if decision.verdict is not Verdict.NEVER:
            reason = self._objection(request, shared + share * candidate.answers, load)
            if reason is None and not decision.admitted:
                reason = RefusalReason.KV_BUSY
        needed = math.ceil(decision.needed_blocks)
        if reason is RefusalReason.KV_BUSY:
            self.expected.delayed(candidate, request, decision)
        if reason is not None:
            return replace(self.refusal(reason, request, load, decision.outlook), blocks_needed=needed)
        grant = self._grant(request, forecast=True)
        self.expected.promise(candidate, request, grant.expected)
        return Reservation(grant.reservation_id, needed, grant.ttl_s)

    def _grant(self, request: ReserveRequest, *, forecast: bool = False) -> Grant:
        reservation_id, ttl_s = f"{self._name}-{next(self._numbers)}", self._ttl_s(request)
        if ttl_s < request.ttl_s and not self._capped:
            self._capped = True
            log.warning("reservations last %g s here unless renewed; %g s were asked for", ttl_s, request.ttl_s)
        sequences = max(1, request.sequences)
        shared, share = self._split(request, forecast=forecast)
        names = [f"{reservation_id}/{index}" for index in range(sequences)] if forecast else []
        grant = Grant(reservation_id, request, shared, share, ttl_s, self._clock() + ttl_s, sequences, names, forecast)
        self._grants[reservation_id] = self._unused[reservation_id] = grant
        self._recount(grant)
        return grant

    def _ttl_s(self, request: ReserveRequest) -> float:
        return min(MAX_TTL_S, max(0.0, request.ttl_s))

    def _running(self) -> Iterator[Hold]:
        return (hold for grant in self._grants.values() if grant.forecast for hold in grant.live)

    def refusal(
        self, reason: RefusalReason, request: ReserveRequest, load: Load, outlook: Outlook | None = None
    ) -> Refusal:
        """A refusal with the numbers behind it."""
        refusal = Refusal(
            reason=reason,
            blocks_needed=self.needed(request),
            blocks_total=self.shape.blocks_total,
            blocks_used=load.blocks_used,
            blocks_reserved=self.reserved_blocks,
            slots_total=self.shape.slots_total,
            slots_used=self._slots_used(load),
        )
        if outlook is None:
            return refusal
        peak, limit = outlook.peak_blocks, outlook.limit_blocks
        return replace(refusal, peak_blocks=peak, limit_blocks=limit, risk=outlook.risk, peak_step=outlook.peak_step)

    def renew(self, reservation_id: str, gateway_id: str) -> bool:
        """Its gateway still has a use for it; False when there is nothing to renew any more."""
        self.expire()
        grant = self._grants.get(reservation_id)
        if grant is None or grant.closed or grant.request.gateway_id != gateway_id:
            return False
        grant.expires_s = self._clock() + grant.ttl_s
        return True

    def release(self, reservation_id: str) -> bool:
        """Nothing more will be started; what runs goes on and is charged until it ends."""
        grant = self._grants.get(reservation_id)
        if grant is None or grant.closed:
            return False
        grant.closed = True
        grant.unstarted = 0
        for name in grant.expected:
            self.expected.ended(name, running=False)
        grant.expected.clear()
        self._settle(grant)
        return True

    def release_request(self, gateway_id: str, request_id: str) -> bool:
        """For a gateway that never got the reply to its Reserve and so does not know the reservation's name."""
        mine = [
            grant.reservation_id
            for grant in self._grants.values()
            if grant.request.gateway_id == gateway_id and grant.request.request_id == request_id
        ]
        return sum(map(self.release, mine)) > 0

    def start(self, reservation_id: str, gateway_id: str, tokens: int) -> Hold | None:
        """Takes one sequence's part of a reservation; None when there is none (left) for this gateway."""
        self.expire()
        grant = self._grants.get(reservation_id)
        if grant is None or grant.request.gateway_id != gateway_id or not grant.unstarted:
            return None
        grant.unstarted -= 1
        name = grant.expected.pop() if grant.forecast else ""
        if name:
            self.expected.started(name, tokens)
        hold = Hold(self, grant, tokens, name)
        grant.live.add(hold)
        self._unused.pop(grant.reservation_id, None)
        self._recount(grant)
        return hold

    def abandon(self, gateway_id: str, grace_s: float) -> None:
        """The gateway's stream is gone: unless it comes back soon, its unused reservations end."""
        self._abandoned[gateway_id] = self._clock() + grace_s

    def adopt(self, gateway_id: str) -> None:
        self._abandoned.pop(gateway_id, None)

    def expire(self) -> int:
        """Ends unused reservations that are past their time; returns how many."""
        now = self._clock()
        gone = {gateway_id for gateway_id, deadline in self._abandoned.items() if deadline <= now}
        late = [grant for grant in self._unused.values() if grant.expires_s <= now or grant.request.gateway_id in gone]
        for grant in late:
            self.release(grant.reservation_id)
        for gateway_id in gone:
            del self._abandoned[gateway_id]
        self.expired += len(late)
        return len(late)

    def _split(self, request: ReserveRequest, *, forecast: bool = False) -> tuple[int, int]:
        """Full blocks of the prompt, and each answer's own: for its growth, or if that is forecast, to begin with."""
        size = self.shape.block_size_tokens
        shared, rest = divmod(request.prompt_tokens, size)
        growth = 1 if forecast else max(1, blocks_for(request.growth_tokens, max(1, request.sequences)))
        return shared, blocks_for(rest + growth, size)

    def _objection(self, request: ReserveRequest, needed: int, load: Load) -> RefusalReason | None:
        shape, sequences = self.shape, max(1, request.sequences)
        if needed > shape.blocks_total or sequences > shape.slots_total or request.prompt_tokens >= shape.max_model_len:
            return RefusalReason.NEVER_FITS
        if self._slots_used(load) + sequences > shape.slots_total:
            return RefusalReason.SLOTS_BUSY
        if self.committed(load) + needed > shape.blocks_total:
            return RefusalReason.KV_BUSY
        return None

    def _slots_used(self, load: Load) -> int:
        foreign = max(0, load.sequences - self.live) if load.foreign else 0
        return max(load.sequences, self.promised + foreign)

    def _held(self) -> int:
        """Blocks that running sequences fill, the block of the token to come included."""
        size, blocks = self.shape.block_size_tokens, 0
        for grant in self._grants.values():
            if grant.live:
                filled = (max(0, blocks_for(hold.tokens + 1, size) - grant.shared) for hold in grant.live)
                blocks += grant.shared + sum(filled)
        return blocks

    def _end(self, hold: Hold, grant: Grant, *, returned: bool, finished: bool) -> None:
        if hold not in grant.live:
            return
        grant.live.discard(hold)
        if not grant.live:
            self._unused[grant.reservation_id] = grant
        back = returned and not grant.closed
        if back:
            grant.unstarted += 1
        if hold.name and back:
            grant.expected.append(hold.name)
            self.expected.returned(hold.name)
        elif hold.name:
            self.expected.ended(hold.name, running=True, finished=finished and not returned)
        grant.expires_s = self._clock() + grant.ttl_s
        self._settle(grant)

    def _settle(self, grant: Grant) -> None:
        if grant.over and self._grants.pop(grant.reservation_id, None) is not None:
            self._unused.pop(grant.reservation_id, None)
            self._charge(grant, Charge())
            return
        self._recount(grant)

    def _recount(self, grant: Grant) -> None:
        if grant.reservation_id in self._grants:
            self._charge(grant, grant.charge)

    def _charge(self, grant: Grant, charge: Charge) -> None:
        before, grant.charged = grant.charged, charge
        self.reserved_blocks += charge.blocks - before.blocks
        self._certain_blocks += charge.certain - before.certain
        self._waiting_blocks += charge.waiting - before.waiting
        self._promised += charge.sequences - before.sequences
        if charge.blocks < before.blocks:
            self.freed()
