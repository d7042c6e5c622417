"""How tokens are drawn: what the engine must know of a request besides its tokens."""

from dataclasses import dataclass
from enum import StrEnum


class StructuredKind(StrEnum):
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"


@dataclass(frozen=True, slots=True)
class StructuredOutput:
    """A grammar for the answer. `json_schema` is JSON text, empty for JSON_OBJECT."""

    kind: StructuredKind
    json_schema: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling of one sequence. Stop strings are not here: text lives in the gateway.

    `max_tokens` is always resolved (at least 1). `top_k` 0 considers every token. `logprobs` and
    `prompt_logprobs` are the number of alternatives per position, None for none at all.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structured: StructuredOutput | None = None
