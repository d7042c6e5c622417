"""How large the steps of vLLM's engine are, set while it runs. In the engine's process.

vLLM's scheduler reads both bounds anew at each step; what was allocated for steps as the engine started is enough for any
smaller one. Without chunks a prompt that is longer than a step would never be computed, so that no limit is taken then.
"""

from typing import Any

#: What the worker calls on vLLM's engine core (a "utility").
METHOD = "tandem_limit_step"

_OWN = "tandem_own_limits"


def teach(core: Any) -> None:
    """Gives vLLM's class of engine cores the method; calls of it run between two steps."""

    def limit_step(self: Any, tokens: int, chunk_tokens: int) -> int:
        return limit(self.scheduler, tokens, chunk_tokens)

    setattr(core, METHOD, limit_step)


def limit(scheduler: Any, tokens: int, chunk_tokens: int) -> int:
    """At most so many tokens a step, and so many of one prompt; 0 is what the engine was started with, which is never
    exceeded. Returns how many tokens a step has without a limit, 0 where none is taken."""
    config = scheduler.scheduler_config
    if not config.enable_chunked_prefill:
        return 0
    own = getattr(scheduler, _OWN, None)
    if own is None:
        own = scheduler.max_num_scheduled_tokens, config.long_prefill_token_threshold
        setattr(scheduler, _OWN, own)
    most, longest = own
    scheduler.max_num_scheduled_tokens = _least(tokens, most)
    config.long_prefill_token_threshold = _least(chunk_tokens, longest)
    return int(most)


def _least(wanted: int, own: int) -> int:
    """0 is no bound, of either."""
    return min(wanted or own, own or wanted)
