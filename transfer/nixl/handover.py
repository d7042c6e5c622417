"""A running request of vLLM's is made to end by length, with its KV kept for a reader. In the engine's process.

vLLM keeps KV for a reader where that was asked for as the work began, and only of what ends by length. Both are read when a
request ends, so that both can be said later: `max_tokens` becomes what it has, and the wish is put where the connector looks.
"""

from typing import Any

#: What the worker calls on vLLM's engine core (a "utility").
METHOD = "tandem_hand_over"


def teach(core: Any) -> None:
    """Gives vLLM's class of engine cores the method; calls of it run between two steps."""

    def hand_over(self: Any, request_id: str) -> bool:
        scheduler = self.scheduler
        return bool(scheduler.connector.hand_over(scheduler.requests.get(request_id), scheduler.max_model_len))

    setattr(core, METHOD, hand_over)


def cut(request: Any, block_size: int, window: int) -> int:
    """After how many tokens of its answer a request can end so that a reader goes on; 0 where it cannot.

    Tokens of steps under way (`num_output_placeholders`) come whatever is said now. At the end the KV of all tokens but the last
    is there; where it fills its blocks, a reader would need one more than there are, so that one more token is waited for.
    """
    prompt, came = request.num_prompt_tokens, request.num_output_tokens
    if not came:
        return 0
    tokens = came + request.num_output_placeholders + 1
    if (prompt + tokens - 1) % block_size == 0:
        tokens += 1
    # One that ends by then is not handed over, and nobody could tell that from a hand-over.
    return tokens if tokens < request.max_tokens and prompt + tokens < window else 0
