"""How much KV an answer is expected to need. Pure."""


def growth_tokens(
    answers: int, declared_max_tokens: int | None, default_output_tokens: int, window: int, prompt_tokens: int
) -> int:
    """Tokens that all answers to one prompt are expected to add (B-71).

    A declared limit is believed; without one the configured default counts, bounded by what the window leaves.
    """
    room = max(0, window - prompt_tokens)
    each = default_output_tokens if declared_max_tokens is None else declared_max_tokens
    return answers * min(each, room)
