"""What `tandem up` prints when everything is ready: endpoint, workers, pairs, and a line to paste."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gateway.cluster.snapshot import ClusterSnapshot, PairSnapshot, WorkerSnapshot
from tandem.supervisor.plan import Plan
from tandem.units import rate, size

#: A larger fleet is counted instead; `tandem status` lists it.
MOST_LISTED = 16


def summary(plan: Plan, snapshot: ClusterSnapshot, model: str, needs_key: bool, took_s: float) -> Sequence[str]:
    lines = ["", f"tandem is ready after {took_s:.0f} s, {snapshot.mode}, at {plan.endpoint}", ""]
    lines += _workers(snapshot.workers)
    lines += _pairs(snapshot.pairs)
    lines += ["", "Try it:", "", curl(plan.endpoint, model, needs_key), ""]
    lines += [
        f"Logs are in {plan.run_dir}.",
        f"`tandem status --endpoint {plan.endpoint}` shows the cluster.",
        # No Ctrl-C reaches one in the background.
        f"Ctrl-C, or here `tandem down --port {plan.port}`, drains and stops.",
    ]
    return lines


def curl(endpoint: str, model: str, needs_key: bool) -> str:
    """Broken into lines that fit 80 columns."""
    parts: tuple[dict[str, Any], ...] = (
        {"model": model},
        {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
        {"max_tokens": 64, "temperature": 0, "stream": True},
    )
    body = "{\n  " + ",\n  ".join(json.dumps(part)[1:-1] for part in parts) + "}"
    key = " \\\n  -H 'Authorization: Bearer YOUR_KEY'" if needs_key else ""
    return (
        f"curl -N {endpoint}/v1/chat/completions{key} \\\n  -H 'Content-Type: application/json' -d {shlex.quote(body)}"
    )


def _workers(workers: Sequence[WorkerSnapshot]) -> list[str]:
    if len(workers) <= MOST_LISTED:
        width = max((len(worker.worker_id) for worker in workers), default=0)
        return [_worker(worker, width) for worker in workers]
    pools = Counter((worker.role, worker.engine, worker.device, worker.tp) for worker in workers)
    return [
        f"  {count} workers     {role:<8} {engine} on {device}, TP {tp}"
        for (role, engine, device, tp), count in pools.items()
    ]


def _pairs(pairs: Sequence[PairSnapshot]) -> list[str]:
    if len(pairs) <= MOST_LISTED:
        return [_pair(pair) for pair in pairs]
    kinds = Counter((pair.state, pair.transport or "?") for pair in pairs)
    return [f"  {count} pairs: {state}, KV over {transport}" for (state, transport), count in kinds.items()]


def _worker(worker: WorkerSnapshot, width: int) -> str:
    tokens = worker.blocks_total * worker.block_size_tokens
    device = f" on {worker.device}" if worker.device != worker.engine else ""
    return (
        f"  {worker.worker_id:<{width}}  {worker.role:<8} {worker.engine} {worker.engine_version}{device}, "
        f"TP {worker.tp}, KV for {tokens:,} tokens"
    )


def _pair(pair: PairSnapshot) -> str:
    speed = f", {rate(pair.bytes_per_s)} measured" if pair.bytes_per_s else ""
    moved = f", {size(pair.bytes)} moved" if pair.bytes else ""
    return (
        f"  {pair.prefill_worker} → {pair.decode_worker}: {pair.state}, KV over {pair.transport or '?'}{speed}{moved}"
    )
