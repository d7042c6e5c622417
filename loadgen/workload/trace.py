"""A workload that is a list of recorded requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from loadgen.demand import Chain, Demand
from loadgen.failure import LoadgenError


@dataclass(frozen=True, slots=True)
class TraceWorkload:
    """Requests in the order of the file. Asked for more than it has, it starts again with fresh prefix ids."""

    name: str
    chains: tuple[Chain, ...]
    remarks: tuple[str, ...] = ()
    shuffle: bool = False
    _ids: int = field(default=0)

    @classmethod
    def of(
        cls, name: str, rows: Sequence[Demand], remarks: Sequence[str] = (), *, shuffle: bool = False
    ) -> "TraceWorkload":
        """Rows with equal session labels become one chain, in order."""
        grouped: dict[str, list[Demand]] = {}
        for number, row in enumerate(rows):
            grouped.setdefault(row.session or f"\0{number}", []).append(row)
        chains = tuple(tuple(replace(d, turn=turn) for turn, d in enumerate(chain)) for chain in grouped.values())
        if not chains:
            raise LoadgenError(f"{name}: no request left")
        ids = max((max(d.prefix) for d in rows if d.prefix), default=-1) + 1
        return cls(name, chains, tuple(remarks), shuffle, ids)

    @property
    def mean_turns(self) -> float:
        return sum(map(len, self.chains)) / len(self.chains)

    def notes(self) -> Sequence[str]:
        return self.remarks

    def draw(self, count: int | None, rng: np.random.Generator) -> Sequence[Chain]:
        order = rng.permutation(len(self.chains)).tolist() if self.shuffle else range(len(self.chains))
        if count is None:
            return [self.chains[i] for i in order]
        picked = []
        for n in range(count):
            again, place = divmod(n, len(self.chains))
            picked.append(self._again(self.chains[order[place]], again))
        return picked

    def _again(self, chain: Chain, again: int) -> Chain:
        if not again:
            return chain
        shift = again * self._ids
        return tuple(
            replace(
                d, prefix=tuple(i + shift for i in d.prefix), session=d.session and f"{d.session}+{again}", at_s=None
            )
            for d in chain
        )
