"""Turns the live cluster into plain values."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gateway.cluster.leases import LeaseKind
from gateway.cluster.pairs import Pair
from gateway.cluster.snapshot import ClusterSnapshot, Integrity, PairSnapshot, Unreachable, WorkerSnapshot
from gateway.cluster.states import PairState
from gateway.cluster.warmer import belongs
from gateway.cluster.worker import Worker
from gateway.policy.distance import placed
from proto.worker import PeerTransfers, Role

if TYPE_CHECKING:
    from gateway.cluster.cluster import Cluster


def survey(cluster: "Cluster") -> ClusterSnapshot:
    mode, missing = serving_mode(cluster)
    phases = Counter(str(request.phase) for request in cluster.requests)
    return ClusterSnapshot(
        gateway_id=cluster.gateway_id,
        mode=mode,
        missing=missing,
        workers=tuple(
            _worker(worker, cluster.clock) for worker in sorted(cluster.workers(), key=lambda one: one.worker_id)
        ),
        pairs=tuple(_pair(pair, cluster) for pair in sorted(cluster.pairs, key=lambda one: one.key)),
        in_flight=dict(phases),
        queued=cluster.queued(),
        unreachable=tuple([Unreachable(*entry) for entry in cluster.roster.unreachable()]),
    )


def serving_mode(cluster: "Cluster") -> tuple[str, str]:
    """How requests would be served now, and what is missing if they would not."""
    ready = [worker for worker in cluster.workers() if worker.ready]
    by_id = {worker.worker_id: worker for worker in ready}
    fluid = cluster.config.routing.fluid is not None
    handoff = any(pair.state is PairState.USABLE and _in_use(pair, by_id, fluid) for pair in cluster.pairs)
    colocated = any(worker.role is Role.BOTH for worker in ready)
    if handoff or colocated:
        return ("mixed" if handoff and colocated else "disaggregated" if handoff else "colocated"), ""
    decodes = any(worker.role.decodes for worker in ready)
    if decodes and cluster.config.routing.decode_may_prefill:
        return "local", ""
    prefills = any(worker.role.prefills for worker in ready)
    return "none", _missing(prefills, decodes, cluster)


def _in_use(pair: Pair, ready: Mapping[str, Worker], fluid: bool) -> bool:
    """Pairs outlive the roles they were made for: their hand-shake stays good should the roles come back."""
    prefill, decode = ready.get(pair.prefill.worker_id), ready.get(pair.decode.worker_id)
    return prefill is not None and decode is not None and belongs(prefill, decode, fluid)


def _missing(prefills: bool, decodes: bool, cluster: "Cluster") -> str:
    if prefills and decodes:
        reasons = [f"{pair.prefill.worker_id} -> {pair.decode.worker_id}: {pair.reason}" for pair in cluster.pairs]
        return "no usable pair: " + "; ".join(reasons or ["none has shaken hands yet"])
    lacking = [name for name, there in (("prefill", prefills), ("decode", decodes)) if not there]
    known = [
        f"{worker.worker_id} ({worker.role}) is {worker.status}"
        + (f": {worker.health.reason}" if worker.health.reason else "")
        for worker in cluster.workers()
        if not worker.ready
    ]
    return f"no ready {' and no ready '.join(lacking)} worker" + (f" ({'; '.join(known)})" if known else "")


def tally(cluster: "Cluster") -> Integrity:
    workers = cluster.roster.all_workers()

    def held(kind: LeaseKind) -> int:
        return sum(worker.leases.count(kind) for worker in workers)

    return Integrity(
        requests=len(cluster.requests),
        queued=cluster.queued(),
        reservations=held(LeaseKind.RESERVATION),
        prefills=held(LeaseKind.PREFILL),
        tickets=held(LeaseKind.TICKET),
        sequences=held(LeaseKind.SEQUENCE),
        cleanups=len(cluster.cleanups),
        overdue=tuple(
            f"{lease.kind} of {lease.owner} on {worker.worker_id}"
            for worker in workers
            for lease in worker.leases.overdue()
        ),
    )


def _worker(worker: Worker, clock: Callable[[], float]) -> WorkerSnapshot:
    info, state, leases = worker.info, worker.state, worker.leases
    heard_s = worker.health.heard_s
    return WorkerSnapshot(
        worker_id=info.worker_id,
        epoch=info.epoch,
        address=worker.address,
        role=worker.role,
        status=worker.status,
        reason=worker.health.reason,
        model=info.model,
        engine=info.engine,
        engine_version=info.engine_version,
        device=info.topology.device,
        tp=info.tp,
        pp=info.pp,
        block_size_tokens=info.block_size_tokens,
        blocks_total=state.blocks_total if state else info.blocks_total,
        blocks_used=state.blocks_used if state else 0,
        blocks_reserved=state.blocks_reserved if state else 0,
        running=state.running if state else 0,
        waiting=state.waiting if state else 0,
        tickets_held=state.tickets_held if state else 0,
        reservations=state.reservations if state else 0,
        preemptions=state.preemptions if state else 0,
        recomputed_tokens=state.recomputed_tokens if state else 0,
        prompt_tokens=state.prompt_tokens if state else 0,
        generated_tokens=state.generated_tokens if state else 0,
        cached_prompt_tokens=state.cached_prompt_tokens if state else 0,
        step_time_s=state.step_time_s if state else 0.0,
        tickets_issued=state.tickets_issued if state else 0,
        tickets_expired=state.tickets_expired if state else 0,
        tickets_released=state.tickets_released if state else 0,
        failed_notifications=state.failed_notifications if state else 0,
        state_age_s=None if heard_s is None else clock() - heard_s,
        lease_reservations=leases.count(LeaseKind.RESERVATION),
        lease_prefills=leases.count(LeaseKind.PREFILL),
        lease_tickets=leases.count(LeaseKind.TICKET),
        sequences=leases.count(LeaseKind.SEQUENCE),
        outstanding_prompt_tokens=leases.tokens(LeaseKind.PREFILL),
        consecutive_faults=worker.health.consecutive_faults,
        blocks_promised=round(state.blocks_promised, 1) if state else 0.0,
        overrun_risk=state.overrun_risk if state else 0.0,
        error_budget=state.error_budget if state else 0.0,
        pool_blocks=state.pool_blocks if state else 0,
        pool_blocks_used=state.pool_blocks_used if state else 0,
        node=info.topology.node,
        rack=info.topology.rack,
        nvlink_domain=info.topology.nvlink_domain,
    )


def _pair(pair: Pair, cluster: "Cluster") -> PairSnapshot:
    reader = cluster.worker(pair.decode.worker_id)
    moved = _transfers(reader, pair.prefill.worker_id)
    return PairSnapshot(
        prefill_worker=pair.prefill.worker_id,
        decode_worker=pair.decode.worker_id,
        state=pair.state,
        reason=pair.reason,
        transport=pair.transport,
        bytes_per_s=pair.bytes_per_s,
        handshake_s=pair.handshake_s,
        transfers=moved.transfers,
        bytes=moved.bytes,
        seconds=moved.seconds,
        failures=moved.failures,
        distance=pair.distance.word if placed(pair.prefill.topology) and placed(pair.decode.topology) else "",
    )


def _transfers(reader: Worker | None, writer: str) -> PeerTransfers:
    if reader is not None and reader.state is not None:
        for transfers in reader.state.transfers:
            if transfers.worker_id == writer:
                return transfers
    return PeerTransfers(writer, 0, 0, 0.0, 0)
