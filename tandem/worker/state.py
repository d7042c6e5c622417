"""Snapshots of a worker: what gateways route by."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from decode_pool.service import DecodeService
from engine.base import EngineStats
from engine.dispatcher import Dispatcher
from engine.duty import Duty
from prefill_pool.service import PrefillService
from proto.worker import WorkerState
from tandem.worker.integrity import Counts, Watchman
from transfer.leases import LeaseState

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StateKeeper:
    """Puts together what dispatcher, pools and engine say; the one writer of every figure (B-54).

    `observe` must be called often, whether or not anybody watches: it is what notices that nothing moves.
    """

    duty: Duty
    dispatcher: Dispatcher
    prefill: PrefillService
    decode: DecodeService
    clock: Callable[[], float]
    stall_s: float
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _watchman: Watchman = field(default_factory=Watchman)
    _progress: tuple[int, int, int] = (0, 0, 0)
    _progress_s: float = field(init=False)
    _stall: str = ""
    _drift: tuple[str, ...] = ()
    _reported: str = ""

    def __post_init__(self) -> None:
        self._progress_s = self.clock()  # work at the first look has not been waiting since the clock began

    def observe(self) -> None:
        self._stall = self._stalled(self.dispatcher.stats())
        self._drift = self._watchman.look(self.counts(), self.clock())
        self._log(self._detail())

    def snapshot(self) -> WorkerState:
        stats = self.dispatcher.stats()
        leases, ledger, load = self.prefill.leases, self.decode.ledger, self.decode.load()
        outlook = ledger.outlook(load)
        return WorkerState(
            epoch=self.duty.epoch,
            sequence=next(self._numbers),
            role=self.duty.role,
            healthy=self.dispatcher.dead is None and not self._stall,
            draining=self.duty.draining,
            detail=self._detail(),
            blocks_total=stats.blocks_total or self.decode.ledger.shape.blocks_total,
            blocks_used=stats.blocks_used,
            blocks_reserved=self.decode.ledger.reserved_blocks,
            reservations=self.decode.ledger.reservations,
            running=stats.running,
            waiting=stats.waiting,
            tickets_held=stats.tickets_held,
            attached_gateways=self.decode.attached,
            sequences=self.sequences,
            preemptions=stats.preemptions,
            recomputed_tokens=stats.recomputed_tokens,
            prompt_tokens=stats.prompt_tokens,
            generated_tokens=stats.generated_tokens,
            cached_prompt_tokens=stats.cached_prompt_tokens,
            steps=stats.steps,
            step_time_s=stats.step_time_s,
            tickets_issued=leases.issued,
            tickets_expired=stats.tickets_expired,
            tickets_released=leases.totals[LeaseState.RELEASED],
            failed_notifications=stats.failed_notifications,
            transfers=stats.transfers,
            totals=stats.totals,
            blocks_promised=ledger.account.certain(load) + outlook.peak_blocks,
            overrun_risk=outlook.risk,
            error_budget=ledger.expected.budget.epsilon,
            pool_blocks=ledger.expected.budget.pool_blocks,
            pool_blocks_used=ledger.pool_report(load).used_blocks,
        )

    @property
    def sequences(self) -> int:
        """Live requests of any kind, those that are being ended included."""
        return self.prefill.in_flight + self.decode.sequences

    @property
    def outstanding(self) -> int:
        """What a drain waits for: running work, promises that will be started, KV that a reader may be reading (B-50)."""
        return (
            self.sequences
            + self.decode.ledger.reservations
            + self.dispatcher.stats().tickets_held
            + self.dispatcher.aborting
        )

    @property
    def drift(self) -> tuple[str, ...]:
        """Disagreements between ledger, dispatcher and engine that have lasted (invariant 3)."""
        return self._drift

    def counts(self) -> Counts:
        stats, ledger = self.dispatcher.stats(), self.decode.ledger
        return Counts(
            live=self.dispatcher.live,
            aborting=self.dispatcher.aborting,
            prefills=self.prefill.in_flight,
            sequences=self.decode.sequences,
            pulls=self.decode.gate.under_way,
            ledger_live=ledger.live,
            reserved_blocks=ledger.reserved_blocks,
            recounted_blocks=ledger.recounted(),
            leases=len(self.prefill.leases),
            engine_running=stats.running,
            engine_waiting=stats.waiting,
            engine_blocks_used=stats.blocks_used,
            engine_tickets=stats.tickets_held,
        )

    def _detail(self) -> str:
        dead = self.dispatcher.dead
        return "; ".join(part for part in (dead.message if dead else "", self._stall, *self._drift) if part)

    def _stalled(self, stats: EngineStats) -> str:
        """An engine with work that neither steps nor speaks is not dead but as good as."""
        now = self.clock()
        progress = (self.dispatcher.frames, stats.steps, stats.prompt_tokens)
        if progress != self._progress or not self.dispatcher.live:
            self._progress, self._progress_s = progress, now
            return ""
        silent_s = now - self._progress_s
        if silent_s < self.stall_s:
            return ""
        return f"no engine step for {silent_s:.0f} s with {self.dispatcher.live} requests"

    def _log(self, detail: str) -> None:
        if detail != self._reported:
            self._reported = detail
            if detail:
                log.warning("%s: %s", self.duty.worker_id, detail)
