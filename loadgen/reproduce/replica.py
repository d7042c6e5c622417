"""One engine that gets its whole share of a batch at once and works until it is empty."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.simulated.cost import Profile
from engine.simulated.job import Job, Kind
from engine.simulated.time_account import TimeAccount
from engine.simulated.virtual import VirtualEngine
from loadgen.demand import Demand
from loadgen.reproduce.layout import vllm_limits
from loadgen.result import Floats


@dataclass(frozen=True, slots=True)
class ReplicaRun:
    """Seconds from the moment the batch came. `times_s`, `free_tokens` and `short` are aligned: the state after
    each event; `short` says that somebody waited for room or a slot from then on."""

    requests: int
    failed: int
    kv_tokens: int
    makespan_s: float
    output_tokens: int
    ttft_s: Floats
    tpot_s: Floats
    preemptions: int
    recomputed_tokens: int
    peak_running: int
    time: TimeAccount
    times_s: Floats
    free_tokens: Floats
    short: Floats


def run_replica(profile: Profile, demands: Sequence[Demand], max_num_seqs: int) -> ReplicaRun:
    engine = VirtualEngine(vllm_limits(profile, max_num_seqs), profile.cost, account=TimeAccount())
    for number, demand in enumerate(demands):
        engine.submit(Job(str(number), demand.prompt_tokens, demand.output_tokens), 0.0)
    watch = _Watch(engine, len(demands))
    while engine.due_s is not None:
        watch.step()
    return watch.result(profile.kv_tokens_total, demands)


class _Watch:
    """Collects what happens in an engine."""

    def __init__(self, engine: VirtualEngine, requests: int) -> None:
        self._engine = engine
        self._first = np.full(requests, np.nan)
        self._end = np.full(requests, np.nan)
        self._times: list[float] = []
        self._free: list[int] = []
        self._short: list[bool] = []
        self._peak = self._failed = 0

    def step(self) -> None:
        engine = self._engine
        for event in engine.advance():
            if event.kind is Kind.FIRST_TOKEN:
                self._first[int(event.request_id)] = event.time_s
            elif event.kind is Kind.FINISHED:
                self._end[int(event.request_id)] = event.time_s
            elif event.kind is Kind.FAILED:
                self._failed += 1
        scheduler = engine.scheduler
        self._peak = max(self._peak, len(scheduler.running))
        self._times.append(engine.now_s)
        self._free.append(scheduler.pool.free)
        self._short.append(scheduler.waiting_count > 0)

    def result(self, kv_tokens: int, demands: Sequence[Demand]) -> ReplicaRun:
        engine, account = self._engine, self._engine.account
        assert account is not None
        outputs = np.array([d.output_tokens for d in demands], dtype=np.float64)
        done = ~np.isnan(self._end)
        with np.errstate(invalid="ignore", divide="ignore"):
            tpot = (self._end - self._first) / (outputs - 1)
        return ReplicaRun(
            requests=len(demands),
            failed=self._failed,
            kv_tokens=kv_tokens,
            makespan_s=engine.now_s,
            output_tokens=int(outputs[done].sum()),
            ttft_s=self._first[~np.isnan(self._first)],
            tpot_s=tpot[done & (outputs > 1)],
            preemptions=engine.counters.preemptions,
            recomputed_tokens=engine.counters.recomputed_tokens,
            peak_running=self._peak,
            time=account,
            times_s=np.array(self._times),
            free_tokens=np.array(self._free, dtype=np.float64) * engine.scheduler.limits.block_size,
            short=np.array(self._short, dtype=np.float64),
        )
