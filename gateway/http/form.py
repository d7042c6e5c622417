"""What chat and plain completions do differently when an answer is written down."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.http.choice import Shown
from gateway.parsers.said import CallDelta, Said, joined
from proto.work import PromptLogprobs

EVENT = b"data: "
END = b"\n\n"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Head:
    """The same for every chunk of one answer (B-13)."""

    answer_id: str
    created: int
    model: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts from engine token ids; the cached share comes from the leg that computed the prompt (B-11).

    `reasoning_tokens` is None where no parser tells them apart.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int | None = None

    def as_json(self) -> dict[str, Any]:
        told = self.reasoning_tokens is not None
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            **({"completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens}} if told else {}),
        }


@dataclass(slots=True)
class Collected:
    """All of one choice, for an answer that is sent as one document."""

    index: int
    shown: list[Shown] = field(default_factory=list)
    prompt_logprobs: PromptLogprobs = ()

    @property
    def text(self) -> str:
        return "".join([shown.text for shown in self.shown])

    @property
    def reasoning(self) -> str:
        return "".join([shown.reasoning for shown in self.shown])

    @property
    def calls(self) -> tuple[CallDelta, ...]:
        return joined([Said(calls=shown.calls) for shown in self.shown if shown.calls]).calls

    @property
    def tokens(self) -> list[int]:
        return [token for shown in self.shown for token in shown.tokens]

    @property
    def last(self) -> Shown:
        return self.shown[-1]


class Form(Protocol):
    """`opening` is sent once a choice, before its first text; `chunk` gives b"" where there is nothing to say."""

    def opening(self, index: int, prompt_logprobs: PromptLogprobs) -> bytes: ...

    def chunk(self, index: int, shown: Shown, usage: Usage | None) -> bytes: ...

    def closing(self, usage: Usage, extra: dict[str, Any] | None) -> bytes: ...

    def document(self, choices: Sequence[Collected], usage: Usage, extra: dict[str, Any] | None) -> dict[str, Any]: ...
