"""Running totals of one engine, from what each step reports."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.base import EngineStats
from engine.vllm.tickets import worker_of
from proto.worker import PeerTransfers, StepTotals
from transfer.nixl import rows

_SMOOTHING = 0.2


@dataclass(slots=True)
class _Peer:
    transfers: int = 0
    bytes: int = 0
    seconds: float = 0.0
    failures: int = 0


@dataclass(slots=True)
class Meter:
    """Counts; `snapshot` is cheap enough to be called at any rate."""

    blocks_total: int = 0
    block_size_tokens: int = 0
    blocks_used: int = 0
    running: int = 0
    waiting: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_prompt_tokens: int = 0
    steps: int = 0
    step_time_s: float = 0.0
    totals: StepTotals = field(default_factory=StepTotals)
    tickets_expired: int = 0
    failed_notifications: int = 0
    failed_handshakes: int = 0
    late_notifications: int = 0
    held: set[str] = field(default_factory=set)
    _busy_since_s: float | None = None
    _expired: set[str] = field(default_factory=set)
    _peers: dict[str, _Peer] = field(default_factory=lambda: defaultdict(_Peer))
    _pulling: dict[str, float] = field(default_factory=dict)

    def scheduler(self, stats: Any, now_s: float) -> None:
        """One step's scheduler statistics, on the engine process's clock."""
        self.blocks_used = round(stats.kv_cache_usage * self.blocks_total)
        self.running = stats.num_running_reqs
        self.waiting = stats.num_waiting_reqs + stats.num_skipped_waiting_reqs
        cache = stats.prefix_cache_stats
        self.recomputed_tokens += cache.preempted_queries - cache.preempted_hits
        if stats.iteration_details is not None:
            self._step(stats.iteration_details, now_s)
        self._busy_since_s = now_s if self.running or self.waiting else None
        if stats.kv_connector_stats:
            self.transfers(stats.kv_connector_stats)

    def _step(self, details: Any, now_s: float) -> None:
        """A step lasts from the one before it; the first after a pause has no such mark."""
        self.steps += 1
        if self._busy_since_s is not None:
            seconds = now_s - self._busy_since_s
            self.step_time_s += (seconds - self.step_time_s) * (_SMOOTHING if self.step_time_s else 1.0)
            self.totals = self.totals.plus(self._one_step(details, seconds))

    def _one_step(self, details: Any, seconds: float) -> StepTotals:
        """What the answers read is taken to be all KV in use: the engine does not say it step by step."""
        answers, held = details.num_generation_requests, self.blocks_used * self.block_size_tokens
        if not details.num_ctx_tokens:
            return StepTotals(1, seconds, answers, held)
        return StepTotals(
            chunk_steps=1,
            chunk_s=seconds,
            chunk_tokens=details.num_ctx_tokens,
            chunk_answers=answers,
            chunk_context_tokens=held,
        )

    def output(self, output: Any, preemptions: int) -> None:
        """One request's share of a step."""
        self.preemptions += preemptions
        self.generated_tokens += len(output.new_token_ids)
        prefill = output.prefill_stats
        if prefill is not None:
            self.prompt_tokens += prefill.num_prompt_tokens
            self.cached_prompt_tokens += prefill.num_local_cached_tokens

    def transfers(self, data: Mapping[str, Any]) -> None:
        """The connector's telemetry of one step, all ranks together."""
        self.failed_notifications += len(data.get("num_failed_notifications", ()))
        self.failed_handshakes += len(data.get("num_failed_handshakes", ()))
        self.late_notifications += len(data.get("num_notifications_after_expiry", ()))
        for request_id, writer, size, seconds in data.get(rows.PULLS, ()):
            self._pull(request_id, writer, size, seconds)
        for writer in data.get(rows.FAILED_PULLS, ()):
            self._peers[worker_of(writer)].failures += 1
        self._expired.update(data.get(rows.EXPIRED_SENDS, ()))
        for request_id in data.get(rows.ENDED_SENDS, ()):
            self.held.discard(request_id)
            self.tickets_expired += request_id in self._expired
            self._expired.discard(request_id)

    def _pull(self, request_id: str, writer: str, size: int, seconds: float) -> None:
        """Ranks pull side by side: their bytes add up, their times overlap."""
        peer = self._peers[worker_of(writer)]  # over all of the writer's epochs
        peer.bytes += size
        before = self._pulling.get(request_id)
        peer.transfers += before is None
        peer.seconds += max(0.0, seconds - (before or 0.0))
        self._pulling[request_id] = max(seconds, before or 0.0)

    def pulled_s(self, request_id: str) -> float:
        """How long a request's pull took; asked once, when the request first answers or ends."""
        return self._pulling.pop(request_id, 0.0)

    def forget(self, request_id: str) -> None:
        self._pulling.pop(request_id, None)

    def snapshot(self, unfinished: int | None = None) -> EngineStats:
        """`unfinished` is how many requests still have to end.

        What an engine said in its latest step may be older than the newest aborts, and one that has nothing to do
        says nothing more (B-57).
        """
        most = self.running + self.waiting if unfinished is None else unfinished
        running = min(self.running, most)
        return EngineStats(
            blocks_total=self.blocks_total,
            blocks_used=self.blocks_used,
            running=running,
            waiting=min(self.waiting, most - running),
            preemptions=self.preemptions,
            recomputed_tokens=self.recomputed_tokens,
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.generated_tokens,
            cached_prompt_tokens=self.cached_prompt_tokens,
            steps=self.steps,
            step_time_s=self.step_time_s,
            tickets_held=len(self.held),
            tickets_expired=self.tickets_expired,
            failed_notifications=self.failed_notifications,
            transfers=tuple(
                PeerTransfers(worker_id, peer.transfers, peer.bytes, peer.seconds, peer.failures)
                for worker_id, peer in self._peers.items()
            ),
            totals=self.totals,
        )
