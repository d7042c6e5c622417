"""What the lifecycle yields: pieces of answers, in token ids, ready for the HTTP surface to render."""

from dataclasses import dataclass

from proto.work import FinishReason, PromptLogprobs, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Piece:
    """New tokens of one choice, merged over both legs.

    `choice` is prompt_index * n + answer_index. `logprobs` is empty or aligned with `tokens` (B-15).
    `cached_tokens` and `prompt_logprobs` come on the first piece of a choice, from the leg that computed
    the prompt (B-11). `capped`: the policy ended it, for want of KV. After a piece with `finish` that choice yields nothing more. A choice that fails
    raises RequestError for the whole request instead.
    """

    choice: int
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish: FinishReason | None = None
    first: bool = False
    cached_tokens: int = 0
    prompt_logprobs: PromptLogprobs = ()
    capped: bool = False
