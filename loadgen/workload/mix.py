"""Several workloads as one: tenants, classes, weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadgen.demand import Chain
from loadgen.failure import LoadgenError
from loadgen.workload.base import Workload


@dataclass(frozen=True, slots=True)
class Labels:
    """Set on every request of a part; empty keeps what the part has. `tenants` spreads it over that many."""

    tenant: str = ""
    klass: str = ""
    tenants: int = 0
    patience_s: float | None = None
    leave_after_tokens: int | None = None
    precision: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    workload: Workload
    weight: float = 1.0
    labels: Labels = Labels()

    def draw(self, count: int | None, rng: np.random.Generator) -> list[Chain]:
        body, names = rng.spawn(2)
        chains = self.workload.draw(count, body)
        picks = names.random(len(chains)).tolist()
        return [self._label(chain, pick) for chain, pick in zip(chains, picks, strict=True)]

    def _label(self, chain: Chain, pick: float) -> Chain:
        labels = self.labels
        tenant = f"{labels.tenant or 'tenant'}-{int(pick * labels.tenants)}" if labels.tenants else labels.tenant
        return tuple(
            replace(
                d,
                tenant=tenant or d.tenant,
                klass=labels.klass or d.klass or self.workload.name,
                patience_s=d.patience_s if labels.patience_s is None else labels.patience_s,
                leave_after_tokens=labels.leave_after_tokens or d.leave_after_tokens,
                precision=labels.precision or d.precision,
            )
            for d in chain
        )


@dataclass(frozen=True, slots=True)
class Mix:
    """Each chain comes from a part drawn by weight. Block ids of different parts never meet."""

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not self.parts or any(not 0 < p.weight < float("inf") for p in self.parts):
            raise LoadgenError("workload: a mix needs parts with weights above 0")

    @property
    def name(self) -> str:
        return " + ".join(p.workload.name for p in self.parts)

    @property
    def mean_turns(self) -> float:
        total = sum(p.weight for p in self.parts)
        return sum(p.weight * p.workload.mean_turns for p in self.parts) / total

    def notes(self) -> Sequence[str]:
        return tuple(note for p in self.parts for note in p.workload.notes())

    def draw(self, count: int | None, rng: np.random.Generator) -> Sequence[Chain]:
        choice_rng, *part_rngs = rng.spawn(1 + len(self.parts))
        if len(self.parts) == 1:
            return self.parts[0].draw(count, part_rngs[0])
        if count is None:
            return self._everything(part_rngs)
        edges = np.cumsum([p.weight for p in self.parts]) / sum(p.weight for p in self.parts)
        choices = np.searchsorted(edges, choice_rng.random(count), "right").clip(max=len(self.parts) - 1)
        drawn = [
            iter(_apart(part.draw(int((choices == i).sum()), part_rngs[i]), i)) for i, part in enumerate(self.parts)
        ]
        return [next(drawn[i]) for i in choices.tolist()]

    def _everything(self, rngs: Sequence[np.random.Generator]) -> list[Chain]:
        """Replay of several traces at once, merged by time."""
        chains = [chain for i, part in enumerate(self.parts) for chain in _apart(part.draw(None, rngs[i]), i)]
        return sorted(chains, key=lambda chain: chain[0].at_s or 0.0)


def _apart(chains: Sequence[Chain], part: int) -> list[Chain]:
    shift = part << 48
    return [
        tuple(
            replace(d, prefix=tuple(i + shift for i in d.prefix), session=d.session and f"{part}/{d.session}")
            for d in chain
        )
        for chain in chains
    ]
