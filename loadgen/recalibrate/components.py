"""What one run took, part by part: every latency and every figure of memory, of a live target or of a simulation."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from loadgen.client.stages import STAGES
from loadgen.client.telemetry import Telemetry
from loadgen.measure.distribution import Distribution
from loadgen.measure.misses import missed_by, spent_s, unserved
from loadgen.measure.verdict import Judged, judge_all
from loadgen.result import Result
from loadgen.slo.policy import Policy

#: Of what a target says of itself, by what is told of it over a run.
_PEAKS = ("kv", "kv_used_blocks", "running", "engine_waiting", "queue")
_MEANS = ("kv", "running")
_GROWTHS = ("preemptions", "recomputed_tokens", "bytes_moved", "handoffs")


class Limit(StrEnum):
    """What the bad requests of a run were waiting for. As far as a client and a target's own figures show it: they do not
    say what an engine's step spent its time on."""

    NOTHING = "nothing"
    PLACE = "a place: in the gateway's line, or at an engine that computes prompts"
    PREFILL = "prefill"
    TRANSFER = "KV transfer"
    DECODE_QUEUE = "the decode engine's queue"
    DECODE = "decode steps"
    RECOMPUTE = "KV capacity: work was done twice"
    UNKNOWN = "unknown: the target does not say where time went"


_OF_STAGE = {
    "queue": Limit.PLACE,
    "prefill": Limit.PREFILL,
    "transfer": Limit.TRANSFER,
    "decode_queue": Limit.DECODE_QUEUE,
}


@dataclass(frozen=True, slots=True)
class Components:
    """`latency_ms`: `ttft`, `tpot`, `e2el` and the stages, over completed requests; a part that is not known has no
    entry. `memory`: peaks, means and growth over the run, by name. `missed`: bad requests by what they broke."""

    offered: int
    completed: int
    good: int
    latency_ms: Mapping[str, Distribution]
    memory: Mapping[str, float]
    missed: Mapping[str, int]
    limit: Limit

    def p50_ms(self, name: str) -> float | None:
        found = self.latency_ms.get(name)
        return None if found is None else found.p50


def components_of(results: Sequence[Result], telemetry: Telemetry, policy: Policy) -> Components:
    judged = judge_all(results, policy)
    bad = [j for j in judged if not j.good]
    missed = missed_by(bad)
    memory = _memory(telemetry)
    return Components(
        len(judged),
        sum(j.result.completed for j in judged),
        len(judged) - len(bad),
        _latencies([j.result for j in judged if j.result.completed]),
        memory,
        dict(missed),
        _limit(bad, missed, memory),
    )


def _latencies(done: Sequence[Result]) -> dict[str, Distribution]:
    values: defaultdict[str, list[float]] = defaultdict(list)
    for result in done:
        for name, seconds in (("ttft", result.ttft_s), ("tpot", result.tpot_s), ("e2el", result.e2e_s)):
            if seconds is not None:
                values[name].append(seconds * 1e3)
        for name, seconds in result.stages_s:
            values[name].append(seconds * 1e3)
    return {name: Distribution.of(values[name]) for name in ("ttft", "tpot", "e2el", *STAGES) if values[name]}


def _memory(telemetry: Telemetry) -> dict[str, float]:
    made: dict[str, float | None] = {"kv_total_blocks": telemetry.peak("kv_total_blocks")}
    made |= {f"{name}_peak": telemetry.peak(name) for name in _PEAKS}
    made |= {f"{name}_mean": telemetry.mean(name) for name in _MEANS}
    made |= {name: telemetry.growth(name) for name in _GROWTHS}
    return {name: value for name, value in made.items() if value is not None}


def _limit(bad: Sequence[Judged], missed: Mapping[str, int], memory: Mapping[str, float]) -> Limit:
    if not bad:
        return Limit.NOTHING
    lost = unserved(missed)
    if missed.get("tpot", 0) > missed.get("ttft", 0) + lost:
        return Limit.RECOMPUTE if memory.get("recomputed_tokens") else Limit.DECODE
    if not any(judged.result.stages_s for judged in bad) and not lost:
        return Limit.UNKNOWN
    waited_s = spent_s(bad)
    return _OF_STAGE[max(_OF_STAGE, key=lambda name: waited_s.get(name, 0.0))]
