"""The worker's own account of its KV: what is promised to whom, in blocks. Pure but for an injected clock."""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from decode_pool.account import Account
from decode_pool.charges import Charges
from decode_pool.expected import Admission, Expected
from decode_pool.grant import Charge, Grant
from decode_pool.grants import Grants
from decode_pool.hold import Hold
from decode_pool.load import Load, Shape
from gateway.policy.admission import Candidate, Outlook, Verdict
from gateway.policy.admission.pool import PoolReport
from proto.reservation import Refusal, RefusalReason, Reservation, ReserveRequest

__all__ = ["MAX_TTL_S", "Hold", "Ledger", "Load", "Shape"]

log = logging.getLogger(__name__)

#: No gateway can hold KV idle for longer than this, whatever it asks for, unless it renews. The grant says so.
MAX_TTL_S = 600.0


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
        self.charges = Charges()
        self.grants = Grants()
        self.account = Account(shape, self.charges, self.grants)
        self._clock = clock
        self._name = name
        self._numbers = count(1)
        self.outgrown = 0
        self._capped = False
        self.expired = 0

    @property
    def reservations(self) -> int:
        return len(self.grants)

    @property
    def live(self) -> int:
        """Sequences that run under a reservation."""
        return self.grants.live

    @property
    def promised(self) -> int:
        """Sequences that run or may be started."""
        return self.charges.sequences

    @property
    def reserved_blocks(self) -> int:
        return self.charges.blocks

    def recounted(self) -> int:
        """`reserved_blocks` from first principles, for the integrity check."""
        return sum(grant.blocks for grant in self.grants)

    def committed(self, load: Load) -> int:
        """Blocks that are not free to promise."""
        return self.account.committed(load)

    def tend(self) -> None:
        """After a step: brings the forecast up to date where that is due, so that the next reservation need not wait for
        it; where nobody does this, it does it itself."""
        self.expected.keep_step(self._running())
        self.expected.book.freshen()

    def outlook(self, load: Load) -> Outlook:
        """What may be held at the worst future step, beside what is certain."""
        self.expected.keep_step(self._running())
        return self.expected.outlook(self.account.certain(load))

    def promised_blocks(self, load: Load) -> float:
        """All that is promised: in full, and by the forecast within the error budget. 0 at idle."""
        return self.account.certain(load) + self.outlook(load).peak_blocks

    def pool_report(self, load: Load) -> PoolReport:
        """The emergency pool's use and price until now."""
        self.expected.pool.observe(self.pool_blocks_used(load), self._clock())
        return self.expected.pool.report()

    def pool_blocks_used(self, load: Load) -> int:
        """How much of the emergency pool is taken by what answers really hold."""
        pool = self.expected.budget.pool_blocks
        held = max(load.blocks_used, self.reserved_blocks - self.charges.waiting)
        return min(pool, max(0, held - (self.shape.blocks_total - pool)))

    def reserve(self, request: ReserveRequest, load: Load, *, others_first: bool = False) -> Reservation | Refusal:
        """`others_first`: what room there is, is left to somebody else; the refusal has the numbers all the same."""
        self.expire()
        self.expected.keep_step(self._running())
        candidate = self.expected.candidate(request, load.step_time_s)
        if candidate is None:
            return self._reserve_in_full(request, load, others_first)
        return self._reserve_by_forecast(request, candidate, load, others_first)

    def _reserve_in_full(self, request: ReserveRequest, load: Load, others_first: bool) -> Reservation | Refusal:
        needed = self.account.needed(request)
        reason = self.account.objection(request, needed, load)
        if reason is None and not (request.emergency and self.account.room_for_now(needed, load)):
            short = len(self.expected) and self.outlook(load).headroom_blocks < needed
            reason = RefusalReason.KV_BUSY if others_first or short else None
        if reason is not None:
            return self.refusal(reason, request, load)
        grant = self._grant(request)
        return Reservation(grant.reservation_id, needed, grant.ttl_s)

    def _reserve_by_forecast(
        self, request: ReserveRequest, candidate: Candidate, load: Load, others_first: bool
    ) -> Reservation | Refusal:
        decision = self.expected.decide(candidate, self.account.certain(load))
        shared, share = self.account.split(request, forecast=True)
        start = shared + share * candidate.answers
        reason: RefusalReason | None = RefusalReason.NEVER_FITS
        if request.emergency and self.account.room_for_now(start, load):
            reason = self.account.objection(request, start, load)
            others_first = False
        elif decision.verdict is not Verdict.NEVER:
            reason = self.account.objection(request, start, load)
            if reason is None and not decision.admitted:
                reason = RefusalReason.KV_BUSY
        needed = math.ceil(decision.needed_blocks)
        if reason is RefusalReason.KV_BUSY and not request.moves:
            self.expected.delayed(candidate, request, decision)
        elif reason is None and others_first:
            reason = RefusalReason.KV_BUSY
        if reason is not None:
            return replace(self.refusal(reason, request, load, decision.outlook), blocks_needed=needed)
        grant = self._grant(request, forecast=True)
        self.expected.promise(candidate, request, grant.expected)
        return Reservation(grant.reservation_id, needed, grant.ttl_s)

    def _grant(self, request: ReserveRequest, *, forecast: bool = False) -> Grant:
        reservation_id, ttl_s = f"{self._name}-{next(self._numbers)}", min(MAX_TTL_S, max(0.0, request.ttl_s))
        if ttl_s < request.ttl_s and not self._capped:
            self._capped = True
            log.warning("reservations last %g s here unless renewed; %g s were asked for", ttl_s, request.ttl_s)
        sequences = max(1, request.sequences)
        shared, share = self.account.split(request, forecast=forecast)
        names = [f"{reservation_id}/{index}" for index in range(sequences)] if forecast else []
        grant = Grant(reservation_id, request, shared, share, ttl_s, self._clock() + ttl_s, sequences, names, forecast)
        self.grants.add(grant)
        self._recount(grant)
        return grant

    def _running(self) -> Iterator[Hold]:
        return (hold for grant in self.grants if grant.forecast for hold in grant.live)

    def refusal(
        self, reason: RefusalReason, request: ReserveRequest, load: Load, outlook: Outlook | None = None
    ) -> Refusal:
        """A refusal with the numbers behind it."""
        refusal = Refusal(
            reason=reason,
            blocks_needed=self.account.needed(request),
            blocks_total=self.shape.blocks_total,
            blocks_used=load.blocks_used,
            blocks_reserved=self.reserved_blocks,
            slots_total=self.shape.slots_total,
            slots_used=self.account.slots_used(load),
        )
        if outlook is None:
            return refusal
        peak, limit = outlook.peak_blocks, outlook.limit_blocks
        return replace(refusal, peak_blocks=peak, limit_blocks=limit, risk=outlook.risk, peak_step=outlook.peak_step)

    def renew(self, reservation_id: str, gateway_id: str) -> bool:
        """Its gateway still has a use for it; False when there is nothing to renew any more."""
        self.expire()
        grant = self.grants.named(reservation_id, gateway_id)
        if grant is None or grant.closed:
            return False
        grant.expires_s = self._clock() + grant.ttl_s
        return True

    def release(self, reservation_id: str) -> bool:
        """Nothing more will be started; what runs goes on and is charged until it ends."""
        grant = self.grants.named(reservation_id)
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
        mine = self.grants.of_request(gateway_id, request_id)
        return sum([self.release(grant.reservation_id) for grant in mine]) > 0

    def start(self, reservation_id: str, gateway_id: str, tokens: int) -> Hold | None:
        """Takes one sequence's part of a reservation; None when there is none (left) for this gateway."""
        self.expire()
        grant = self.grants.named(reservation_id, gateway_id)
        if grant is None or not grant.unstarted:
            return None
        grant.unstarted -= 1
        name = grant.expected.pop() if grant.forecast else ""
        if name:
            self.expected.started(name, tokens)
        hold = Hold(self, grant, tokens, name)
        grant.live.add(hold)
        self.grants.noted(grant)
        self._recount(grant)
        return hold

    def abandon(self, gateway_id: str, grace_s: float) -> None:
        """The gateway's stream is gone: unless it comes back soon, its unused reservations end."""
        self.grants.abandon(gateway_id, self._clock() + grace_s)

    def adopt(self, gateway_id: str) -> None:
        self.grants.adopt(gateway_id)

    def expire(self) -> int:
        """Ends unused reservations that are past their time; returns how many."""
        late = self.grants.late(self._clock())
        for grant in late:
            self.release(grant.reservation_id)
        self.expired += len(late)
        return len(late)

    def _end(self, hold: Hold, grant: Grant, *, returned: bool, finished: bool, moves: bool) -> None:
        if hold not in grant.live:
            return
        grant.live.discard(hold)
        self.grants.noted(grant)
        back = returned and not grant.closed
        if back:
            grant.unstarted += 1
        if hold.name and back:
            grant.expected.append(hold.name)
            self.expected.returned(hold.name)
        elif hold.name:
            self.expected.ended(hold.name, running=True, finished=finished and not returned and not moves)
        if moves:
            self.expected.answer_left()
        grant.expires_s = self._clock() + grant.ttl_s
        self._settle(grant)

    def _settle(self, grant: Grant) -> None:
        if grant.over and self.grants.remove(grant):
            self.charges.charge(grant, Charge())
            return
        self._recount(grant)

    def _recount(self, grant: Grant) -> None:
        if grant in self.grants:
            self.charges.charge(grant, grant.charge)
