"""A closed batch on a whole layout: all requests at once, dealt out to the replicas in turn."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine.simulated.cost import Profile
from loadgen.demand import Demand
from loadgen.reproduce.layout import Layout, engine_of
from loadgen.reproduce.replica import ReplicaRun, run_replica
from loadgen.reproduce.stranded import stranded_token_s
from loadgen.result import Floats
from loadgen.workload.base import Workload

#: vLLM's default on GPUs of this size, per engine.
MAX_NUM_SEQS = 1024


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds of one latency over the requests of a batch."""

    mean: float
    p50: float
    p99: float

    @classmethod
    def of(cls, values: Floats) -> "Spread":
        if not values.size:
            return cls(0.0, 0.0, 0.0)
        p50, p99 = np.percentile(values, (50, 99))
        return cls(float(values.mean()), float(p50), float(p99))


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """`stranded_token_s`: free KV token-seconds while another replica preempts or queues."""

    requests: int
    kv_tokens: int
    makespan_s: float
    preemptions: int
    recomputed_tokens: int
    peak_running: int
    stranded_token_s: float


@dataclass(frozen=True, slots=True)
class BatchRun:
    """What became of a closed batch. Shares are of engine time, all replicas together; `prefill_share` counts steps
    that hold prompt tokens or recompute lost ones, whatever else they do. `stranded_share` is stranded token-seconds
    over KV tokens × makespan of all replicas."""

    layout: str
    gpus: int
    requests: int
    failed: int
    max_num_seqs: int
    output_tokens: int
    makespan_s: float
    ttft_s: Spread
    tpot_s: Spread
    preemptions: int
    recomputed_tokens: int
    stranded_share: float
    prefill_share: float
    decode_share: float
    collective_share: float
    replicas: tuple[ReplicaFacts, ...]

    @property
    def tokens_per_s(self) -> float:
        return self.output_tokens / self.makespan_s if self.makespan_s else 0.0

    @property
    def recomputed_share(self) -> float:
        """Tokens computed again, over tokens that anybody asked for."""
        return self.recomputed_tokens / self.output_tokens if self.output_tokens else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "tokens_per_s": self.tokens_per_s, "recomputed_share": self.recomputed_share}


def draw(workload: Workload, count: int, seed: int) -> list[Demand]:
    """The same requests for every layout."""
    return [demand for chain in workload.draw(count, np.random.default_rng(seed)) for demand in chain]


def run_batch(model: str, layout: Layout, demands: Sequence[Demand], *, max_num_seqs: int = MAX_NUM_SEQS) -> BatchRun:
    """`max_num_seqs` is each engine's, as in vLLM. Raises DoesNotFitError when the weights leave no room."""
    return run_on(engine_of(model, layout), layout, demands, max_num_seqs=max_num_seqs)


def run_on(profile: Profile, layout: Layout, demands: Sequence[Demand], *, max_num_seqs: int) -> BatchRun:
    """As `run_batch`, on replicas of a given profile."""
    runs = [run_replica(profile, demands[k :: layout.dp], max_num_seqs) for k in range(layout.dp)]
    return _summary(layout, runs, max_num_seqs)


def _summary(layout: Layout, runs: Sequence[ReplicaRun], max_num_seqs: int) -> BatchRun:
    stranded = stranded_token_s(runs)
    makespan_s = max(run.makespan_s for run in runs)
    busy_s = sum(run.time.total_s for run in runs) or 1.0
    prefill = sum(run.time.prefill_s for run in runs) / busy_s
    return BatchRun(
        layout=str(layout),
        gpus=layout.gpus,
        requests=sum(run.requests for run in runs),
        failed=sum(run.failed for run in runs),
        max_num_seqs=max_num_seqs,
        output_tokens=sum(run.output_tokens for run in runs),
        makespan_s=makespan_s,
        ttft_s=Spread.of(np.concatenate([run.ttft_s for run in runs])),
        tpot_s=Spread.of(np.concatenate([run.tpot_s for run in runs])),
        preemptions=sum(run.preemptions for run in runs),
        recomputed_tokens=sum(run.recomputed_tokens for run in runs),
        stranded_share=sum(stranded) / (sum(run.kv_tokens for run in runs) * makespan_s or 1.0),
        prefill_share=prefill,
        decode_share=1.0 - prefill,
        collective_share=sum(run.time.collective_s for run in runs) / busy_s,
        replicas=tuple(
            ReplicaFacts(
                requests=run.requests,
                kv_tokens=run.kv_tokens,
                makespan_s=run.makespan_s,
                preemptions=run.preemptions,
                recomputed_tokens=run.recomputed_tokens,
                peak_running=run.peak_running,
                stranded_token_s=value,
            )
            for run, value in zip(runs, stranded, strict=True)
        ),
    )
