"""What is known of a request before it runs, and the classes it belongs to. No prompt text."""

from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

#: One class: the labels from the root down. () is everything.
ClassKey = tuple[str, ...]

#: Where a class's tenant is among its labels.
_TENANT_LABEL = 2


class FinishedBy(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"  # max_tokens, thinking budget or window
    CLIENT_LEFT = "client_left"
    FAILED = "failed"

    @property
    def censored(self) -> bool:
        """The answer would have been longer: its length is a lower bound."""
        return self is not FinishedBy.STOP

    @property
    def left_early(self) -> bool:
        """Something outside of the request's own limits ended it."""
        return self in (FinishedBy.CLIENT_LEFT, FinishedBy.FAILED)


@dataclass(frozen=True, slots=True)
class Features:
    """Labels are free text of the operator or client; `task` and `effort` as declared (reasoning_effort)."""

    model: str
    prompt_tokens: int
    tenant: str = ""
    task: str = ""
    effort: str = ""
    thinking_budget: int | None = None
    tools: bool = False
    structured: bool = False

    @property
    def kind(self) -> str:
        """Task, effort and the shape that the request asks of its answer, in one label."""
        return _kind(self.task, self.effort, self.thinking_budget, self.tools, self.structured)

    def path(self, prompt_edges: tuple[int, ...]) -> tuple[ClassKey, ...]:
        """Its classes, widest first: all → model → kind → tenant → prompt-length bucket."""
        bucket = bisect_left(prompt_edges, self.prompt_tokens)
        edge = prompt_edges[bucket] if bucket < len(prompt_edges) else None
        kind = self.task, self.effort, self.thinking_budget, self.tools, self.structured
        return _path(self.model, kind, self.tenant, edge)


def untenanted(key: ClassKey) -> ClassKey:
    """The labels of a class without the one that says whose it is."""
    return *key[:_TENANT_LABEL], *key[_TENANT_LABEL + 1 :]


@lru_cache(maxsize=4096)  # every request asks more than once, and there are few kinds of them
def _path(
    model: str, kind: tuple[str, str, int | None, bool, bool], tenant: str, edge: int | None
) -> tuple[ClassKey, ...]:
    prompt = "prompt-long" if edge is None else f"prompt≤{edge}"
    labels = (model, _kind(*kind), tenant or "-", prompt)
    return (), labels[:1], labels[:2], labels[:3], labels


def _kind(task: str, effort: str, thinking_budget: int | None, tools: bool, structured: bool) -> str:
    budget = "" if thinking_budget is None else f"think<{1 << max(0, thinking_budget).bit_length()}"
    shape = "json" if structured else "tools" if tools else ""
    return "/".join([part for part in (task, effort, budget, shape) if part]) or "-"
