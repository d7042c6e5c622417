"""What limits a layout, read off a simulation just above the rate that it holds: which limit breaks first, in which phase
the requests that broke it spent their time, and what the engines of that phase were doing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.simulated.time_account import TimeAccount
from loadgen.measure.misses import missed_by, spent_s, unserved
from loadgen.measure.verdict import Judged
from loadgen.plan.trial import Accounted
from loadgen.result import Result
from loadgen.simulate import WorkerFigures
from proto.worker import Role

#: An engine that is in steps for less of the time than this is not what its requests wait for, on the mean.
_BUSY = 0.75
#: From here on an engine, or a batch, has no room to spare.
_SATURATED = 0.9
#: KV ran out for an engine that computed more than this share of its tokens a second time.
_RECOMPUTED = 0.05
#: So many of those that hold a place have no computed prompt when it is the prompts that the others wait for.
_UNCOMPUTED = 0.5


class Resource(StrEnum):
    KV = "KV capacity"
    BANDWIDTH = "HBM bandwidth"
    COMPUTE = "compute"
    COLLECTIVES = "link between ranks"
    LINK = "KV link"
    SLOTS = "max_num_seqs"
    QUEUEING = "queueing"
    NONE = "nothing"


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """Means over a pool's workers; the shares of engine time add up to 1."""

    role: str
    workers: int
    busy: float
    kv_used: float
    kv_stranded: float
    shares: Mapping[str, float]
    prefill_share: float
    preemptions: int
    recomputed: float


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """`evidence` is the figures that led to it, in a sentence. `stages_s`: mean seconds by phase of those that missed."""

    resource: Resource
    where: str
    evidence: str
    rate: float
    missed: Mapping[str, int]
    stages_s: Mapping[str, float]
    pools: tuple[PoolFigures, ...]


def bottleneck_of(seen: Accounted) -> Bottleneck:
    pools = tuple(_pools(seen))
    bad = [j for j in seen.judged if not j.good]
    missed = missed_by(bad)
    stages_s = {name: whole_s / len(bad) for name, whole_s in spent_s(bad).items()}
    resource, where, evidence = _named(seen, bad, missed, stages_s, pools)
    return Bottleneck(resource, where, evidence, seen.rate, dict(missed), stages_s, pools)


def _named(
    seen: Accounted,
    bad: Sequence[Judged],
    missed: Mapping[str, int],
    stages_s: Mapping[str, float],
    pools: Sequence[PoolFigures],
) -> tuple[Resource, str, str]:
    if not bad:
        return Resource.NONE, "", f"every request was good at {seen.rate:.3g}/s"
    decoders = [p for p in pools if p.role != "prefill"]
    late = missed.get("ttft", 0) + unserved(missed)
    if late < missed.get("tpot", 0):
        pool = max(decoders, key=lambda p: p.busy)
        return *_working(pool), f"{missed['tpot']} of {len(bad)} bad requests missed TPOT; {_told(pool)}"
    before = {name: stages_s.get(name, 0.0) for name in ("queue", "prefill", "transfer", "decode_queue")}
    phase = max(before, key=lambda name: before[name])
    lead = f"{late} of {len(bad)} bad requests were late or refused, {before[phase]:.2f} s of it on the mean in {phase}"
    if phase == "transfer":
        return Resource.LINK, "transfer", lead
    if phase == "queue":
        in_line_s = sum(_in_line_s(j.result) for j in bad) / len(bad)
        if in_line_s >= before["queue"] / 2:
            return _waiting(seen, lead, pools, max(decoders, key=lambda p: p.kv_used))
        lead += f" ({in_line_s:.2f} s of that in the gateway's line, the rest at engines that compute prompts)"
    pool = max(decoders, key=lambda p: p.busy) if phase == "decode_queue" else max(pools, key=_on_prompts)
    if pool.busy < _BUSY:
        return Resource.QUEUEING, pool.role, f"{lead} while its engines were only {pool.busy:.0%} busy; {_told(pool)}"
    resource, where = _working(pool)
    return resource, where, f"{lead}; {_told(pool)}"


def _in_line_s(result: Result) -> float:
    """Who was turned away had no place, ever."""
    return result.line_s if result.stages_s else result.e2e_s


def _on_prompts(pool: PoolFigures) -> float:
    """Engines that were in a step with prompts, on the mean. One that decodes may be busier, and have none of them."""
    return pool.workers * pool.busy * pool.prefill_share


def _waiting(
    seen: Accounted, lead: str, pools: Sequence[PoolFigures], decoder: PoolFigures
) -> tuple[Resource, str, str]:
    """Requests wait at the gateway for a place on a decode worker. Places are also held for prompts not computed yet,
    so a saturated prefill pool shows here first; then it is sequences, or else KV, used or reserved. How full KV is on the
    mean says little of that: what is reserved for growth is empty."""
    prefill = next((p for p in pools if p.role == "prefill" and p.busy >= _SATURATED), None)
    if prefill is not None and seen.uncomputed > _UNCOMPUTED:
        resource, where = _working(prefill)
        held = f"{seen.uncomputed:.0%} of the places held for prompts not computed yet"
        return resource, where, f"{lead}, {held}; {_told(prefill)}"
    slots = sum(p.engine.seqs * p.workers for p in seen.candidate.parts if p.role is not Role.PREFILL)
    running = _mean_running(seen)
    if running >= _SATURATED * slots:
        return Resource.SLOTS, decoder.role, f"{lead} with {running:.0f} of {slots} sequences running; {_told(decoder)}"
    return Resource.KV, decoder.role, f"{lead}, for KV used or reserved; {_told(decoder)}"


def _mean_running(seen: Accounted) -> float:
    """While requests were being sent."""
    last_s = max((j.result.intended_s for j in seen.judged), default=0.0)
    values = [p.values["running"] for p in seen.outcome.telemetry.points if p.at_s <= last_s]
    return sum(values) / len(values) if values else 0.0


def _working(pool: PoolFigures) -> tuple[Resource, str]:
    """What most of the engines' time went to; work done a second time means that KV ran out."""
    if pool.recomputed > _RECOMPUTED:
        return Resource.KV, pool.role
    names = {"compute": Resource.COMPUTE, "memory": Resource.BANDWIDTH, "collective": Resource.COLLECTIVES}
    return max(names.items(), key=lambda kv: pool.shares.get(kv[0], 0.0))[1], pool.role


def _told(pool: PoolFigures) -> str:
    parts = ", ".join(f"{name} {share:.0%}" for name, share in pool.shares.items() if share >= 0.005)
    return (
        f"{pool.role} engines {pool.busy:.0%} busy ({parts}; {pool.prefill_share:.0%} in steps with prompts), "
        f"KV {pool.kv_used:.0%} used, {pool.preemptions} preemptions"
    )


def _pools(seen: Accounted) -> list[PoolFigures]:
    roles = dict.fromkeys(w.role for w in seen.outcome.workers)
    return [_pool(role, [w for w in seen.outcome.workers if w.role == role], seen.accounts) for role in roles]


def _pool(role: str, workers: Sequence[WorkerFigures], accounts: Mapping[str, TimeAccount]) -> PoolFigures:
    mine = [accounts[w.name] for w in workers if w.name in accounts]
    whole = sum(a.total_s for a in mine) or 1.0
    shares = {
        "compute": sum(a.compute_s for a in mine) / whole,
        "memory": sum(a.memory_s for a in mine) / whole,
        "collective": sum(a.collective_s for a in mine) / whole,
        "overhead": sum(a.overhead_s for a in mine) / whole,
    }
    count = len(workers)
    tokens = sum(w.generated_tokens + w.prompt_tokens + w.recomputed_tokens for w in workers)
    return PoolFigures(
        role,
        count,
        sum(w.busy for w in workers) / count,
        sum(w.kv_used for w in workers) / count,
        sum(w.kv_stranded for w in workers) / count,
        shares,
        sum(a.prefill_s for a in mine) / whole,
        sum(w.preemptions for w in workers),
        sum(w.recomputed_tokens for w in workers) / max(1, tokens),
    )
