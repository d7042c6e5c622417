"""One schedule under one policy, in virtual time, and what became of each request."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.policy.control.classes import Classes
from gateway.policy.control.controller import controller_of
from gateway.policy_config import PolicyConfig
from loadgen.measure.distribution import Distribution
from loadgen.result import Ending, Result
from loadgen.schedule import Schedule
from loadgen.simulate.layout import Layout
from loadgen.simulate.simulation import simulate

#: A turn that comes within this is no waiting.
QUEUED_ABOVE_S = 0.001


@dataclass(frozen=True, slots=True)
class Tally:
    """`admitted`: got KV; of them `queued` waited for it. `refused` by reason, the queue's timeouts among them; `ended`
    early: failed, or left by their clients. Waits in the gateway's line, in s, of all that were admitted: what a prefill
    engine makes a prompt wait is none. TTFT and TPOT in ms."""

    requests: int
    admitted: int
    queued: int
    refused: Mapping[str, int]
    ended: Mapping[str, int]
    wait_s: Distribution
    ttft_ms: Distribution
    tpot_ms: Distribution

    @property
    def refusals(self) -> int:
        return sum(self.refused.values())

    def document(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "admitted": self.admitted,
            "queued": self.queued,
            "refused": dict(self.refused),
            "ended_early": dict(self.ended),
            "wait_s": self.wait_s.as_dict(),
            "ttft_ms": self.ttft_ms.as_dict(),
            "tpot_ms": self.tpot_ms.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one policy would have done. Figures of a model."""

    policy: PolicyConfig
    total: Tally
    by_class: Mapping[str, Tally]
    by_tenant: Mapping[str, Tally]
    preemptions: int
    recomputed_tokens: int
    duration_s: float

    def document(self) -> dict[str, Any]:
        return {
            "policy": self.policy.name,
            "total": self.total.document(),
            "by_class": {name: tally.document() for name, tally in self.by_class.items()},
            "by_tenant": {name: tally.document() for name, tally in self.by_tenant.items()},
            "preemptions": self.preemptions,
            "recomputed_tokens": self.recomputed_tokens,
            "duration_s": self.duration_s,
        }


def replay(schedule: Schedule, layout: Layout, policy: PolicyConfig) -> Replayed:
    """Pure. The length model starts from the policy's prior, as a gateway does that has just been started."""
    gateway = layout.gateway.model_copy(update={"policy": policy})
    outcome = simulate(replace(layout, gateway=gateway, controller=controller_of), schedule)
    classes = Classes.of(policy)
    results = outcome.results
    return Replayed(
        policy,
        tally(results),
        _grouped(results, [classes.pick(one.tenant, one.klass).name for one in results]),
        _grouped(results, [one.tenant for one in results]),
        outcome.preemptions,
        outcome.recomputed_tokens,
        outcome.duration_s,
    )


def tally(results: Sequence[Result]) -> Tally:
    admitted = [one for one in results if one.stages_s and one.ending is not Ending.REJECTED]
    waits = [one.line_s for one in admitted]
    rest = [one for one in results if one.ending not in (Ending.REJECTED, Ending.COMPLETED)]
    return Tally(
        len(results),
        len(admitted),
        sum(wait_s > QUEUED_ABOVE_S for wait_s in waits),
        dict(sorted(Counter(one.reason for one in results if one.ending is Ending.REJECTED).items())),
        dict(sorted(Counter(one.reason or one.ending.value for one in rest).items())),
        Distribution.of(waits),
        Distribution.of([1e3 * one.ttft_s for one in results if one.ttft_s is not None]),
        Distribution.of([1e3 * one.tpot_s for one in results if one.tpot_s is not None and one.completed]),
    )


def _grouped(results: Sequence[Result], names: Sequence[str]) -> dict[str, Tally]:
    groups: dict[str, list[Result]] = {}
    for name, result in zip(names, results, strict=True):
        groups.setdefault(name, []).append(result)
    return {name: tally(group) for name, group in sorted(groups.items())}
