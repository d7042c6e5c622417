"""One iteration of the engine, planned but not yet run."""

from dataclasses import dataclass, field

from engine.simulated.cost import PrefillChunk
from engine.simulated.sequence import Sequence


@dataclass(slots=True)
class Step:
    """One iteration: who computes what. `context_tokens` are the KV tokens that the decodes read.

    `scheduled` and its `tokens` leave out the `steady` members of the cohort, each of which decodes one token.
    """

    scheduled: list[Sequence] = field(default_factory=list)
    tokens: int = 0
    steady: int = 0
    decodes: int = 0
    context_tokens: int = 0
    chunks: list[PrefillChunk] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    loading: list[Sequence] = field(default_factory=list)

    @property
    def computes(self) -> bool:
        return bool(self.scheduled or self.steady)


@dataclass(slots=True)
class Counters:
    preemptions: int = 0
    recomputed_tokens: int = 0
    cached_prompt_tokens: int = 0
    prompt_tokens: int = 0
