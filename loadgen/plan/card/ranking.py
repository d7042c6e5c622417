"""Which layouts of a card would answer most: the fluid limit of an endless stream of long answers, no limits on latency."""

from dataclasses import dataclass

from loadgen.bound import Pool, bound_of
from loadgen.plan.candidate import Engine
from loadgen.plan.card.card import Card, Placement
from loadgen.reproduce.batch import MAX_NUM_SEQS, draw
from loadgen.reproduce.lengths import Lognormal

#: The spread of the answers' lengths, and how many stand for all.
_SPREAD, _SAMPLE = 0.7, 200


@dataclass(frozen=True, slots=True)
class Ranked:
    """`replicas` engines of that layout side by side, and the requests that they answer in a second."""

    placement: Placement
    replicas: int
    requests_per_s: float

    @property
    def label(self) -> str:
        return self.placement.degrees if self.replicas == 1 else f"{self.replicas} × {self.placement.degrees}"


def ranking(card: Card, gpus: int, answer_tokens: float) -> list[Ranked]:
    """The best first; layouts with room for KV that use all GPUs."""
    demands = draw(Lognormal(answer_tokens, _SPREAD).workload(), _SAMPLE, 1)
    found = []
    for each in card.placements:
        if each.kv_tokens is None or gpus % each.gpus:
            continue
        engine = Engine(card.hardware, each.tp, each.pp, each.ep, seqs=MAX_NUM_SEQS)
        rate = bound_of([Pool(engine.load(), gpus // each.gpus)], demands).rate_per_s
        found.append(Ranked(each, gpus // each.gpus, rate))
    return sorted(found, key=lambda each: -each.requests_per_s)
