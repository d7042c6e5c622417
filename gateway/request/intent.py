"""What a client wants, validated and tokenized: the input of the request lifecycle."""

from dataclasses import dataclass
from math import inf

from proto.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Intent:
    """One HTTP request. `prompts` has one token tuple a prompt; each prompt gets `n` answers.

    `sampling.max_tokens` is None-free: `declared_max_tokens` says whether the client set it.
    `request_id` is ours and unique; the client's own id, if any, is only echoed (invariant 8).
    `effort`, `thinking_budget`: as declared; what is not one of the known words is "". `tools`: the model may call some.
    `deadline_s`: the moment until which the client waits for its turn.
    `cache_salt` already contains the tenant, unless sharing is configured.
    """

    request_id: str
    model: str
    prompts: tuple[tuple[int, ...], ...]
    n: int
    sampling: Sampling
    declared_max_tokens: bool
    tenant: str = ""
    priority: int = 0
    cache_salt: str = ""
    effort: str = ""
    thinking_budget: int | None = None
    tools: bool = False
    deadline_s: float | None = None

    @property
    def choices(self) -> int:
        return len(self.prompts) * self.n

    @property
    def wait_until_s(self) -> float:
        return inf if self.deadline_s is None else self.deadline_s
