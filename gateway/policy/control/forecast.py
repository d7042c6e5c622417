"""What a prompt has to expect of the whole fleet: the forecast by which it may be refused early. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.policy.admission.ttft import predicted_ttft_s
from gateway.policy.need import Need
from gateway.policy.prefill_choice import ASSUMED_LINK_BYTES_PER_S, ASSUMED_PREFILL_TOKENS_PER_S
from gateway.policy.routing import Fleet, Path

#: Prompt tokens of one engine step; only how the last step is rounded depends on it.
_STEP_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class FleetForecast:
    """Implements `rejection.Forecast`.

    `load`: share of all decode workers' room that is promised, those who wait included; it falls by
    `drains_per_s` while answers end, and nothing comes.
    """

    predicted_ttft_s: float
    load: float
    drains_per_s: float = 0.0

    def decode_load_at(self, t_s: float) -> float:
        return max(0.0, self.load - t_s * self.drains_per_s)


def queue_s(waiting: int, admitted_per_s: float) -> float:
    """Until a newcomer's turn behind `waiting` others, at the rate of late; 0 while that is not known."""
    return waiting / admitted_per_s if waiting and admitted_per_s > 0 else 0.0


def prefill_s(need: Need, fleet: Fleet, speed_tokens_per_s: float, kv_bytes_per_token: int = 0) -> float:
    """Of the quickest worker that may compute the prompt: what it has in hand, and the prompt less what is cached.

    `speed_tokens_per_s`: of late, 0 while not known; then what workers measured is too old to go by as well.
    """
    known = speed_tokens_per_s > 0
    cached = max((decode.cached_tokens for decode in fleet.decodes), default=0)
    handoff_s = need.prompt_tokens * kv_bytes_per_token / ASSUMED_LINK_BYTES_PER_S
    times = [
        predicted_ttft_s(
            need.prompt_tokens,
            worker.outstanding_tokens,
            min(cached, need.prompt_tokens - 1),
            tokens_per_s=(known and worker.tokens_per_s) or speed_tokens_per_s or ASSUMED_PREFILL_TOKENS_PER_S,
            token_budget=_STEP_TOKENS,
            handoff_s=handoff_s,
        )
        for worker in fleet.prefills
    ]
    if times:
        return min(times)
    return max(1, need.prompt_tokens - cached) / (speed_tokens_per_s or ASSUMED_PREFILL_TOKENS_PER_S)


def decode_load(fleet: Fleet, queued_blocks: float) -> tuple[float, float]:
    """(share of room that is promised or waited for, blocks of room in all). An emergency pool is neither room nor load."""
    room = free = 0.0
    for decode in fleet.decodes:
        mine = max(0, decode.blocks_total - decode.pool_blocks)
        left = decode.blocks_free if decode.headroom_blocks is None else decode.headroom_blocks
        room += mine
        free += min(mine, max(0.0, left))
    return ((room - free + queued_blocks) / room if room else 1.0), room


def arrival_s(path: Path, need: Need, fleet: Callable[[], Fleet], speed_tokens_per_s: float) -> float:
    """When the KV of a prompt that is placed now will be there: at once if the decode worker computes it itself, and
    while no speed is known, since KV that comes sooner than it was counted for is room promised twice."""
    return prefill_s(need, fleet(), speed_tokens_per_s) if path is Path.REMOTE and speed_tokens_per_s > 0 else 0.0
