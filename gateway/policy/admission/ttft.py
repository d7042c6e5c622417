"""When a prompt's first token is to be expected from a prefill worker. Pure (R-22)."""


def predicted_ttft_s(
    prompt_tokens: int,
    queued_tokens: int,
    cached_tokens: int = 0,
    *,
    tokens_per_s: float,
    token_budget: int,
    step_s: float = 0.0,
    handoff_s: float = 0.0,
) -> float:
    """Seconds from now to the first token at the client's side of the hand-off.

    Prefill is first come, first served in steps of at most `token_budget` prompt tokens; a step takes the time of its
    tokens at `tokens_per_s`, and `step_s` at least. `queued_tokens`: uncached prompt tokens ahead of this one, running
    and waiting. `cached_tokens`: the prefix that hits; the last token is always computed. ValueError: no speed, no budget.
    """
    if tokens_per_s <= 0 or token_budget <= 0:
        raise ValueError(f"a prefill worker needs a speed and a token budget, not {tokens_per_s:g} and {token_budget}")
    own = max(1, prompt_tokens - max(0, cached_tokens))
    full, rest = divmod(max(0, queued_tokens) + own, token_budget)
    last_s = max(step_s, rest / tokens_per_s) if rest else 0.0
    return full * max(step_s, token_budget / tokens_per_s) + last_s + handoff_s
