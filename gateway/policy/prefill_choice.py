"""Who prefills a prompt that is handed off. Pure."""

from collections.abc import Collection, Sequence
from math import inf

from gateway.policy.distance import Distance
from gateway.policy.fleet import Links, PrefillCandidate

#: Used until a worker's own speed has been seen.
ASSUMED_PREFILL_TOKENS_PER_S = 5_000.0
ASSUMED_LINK_BYTES_PER_S = 1e9
#: KV that arrives later by less than this share, or this time, arrives as early: measured speeds differ by as much.
_ALIKE, _ALIKE_S = 0.05, 0.001


def choose_prefill(
    prompt_tokens: int,
    kv_bytes_per_token: int,
    candidates: Collection[PrefillCandidate],
    links: Links,
    avoid: Collection[str] = (),
) -> str | None:
    """The prefill worker whose KV is predicted to arrive first; None when no candidate has a usable pair.

    The fewest outstanding prompt tokens, priced at one speed for all, plus the link's time; its rank breaks ties.
    One speed, because each worker's own is only measured when it is used: a bad first figure would bar it for ever. Of
    those whose KV arrives about as early, the nearest.
    """
    linked = [worker for worker in candidates if worker.worker_id in links]
    speed = _speed(linked)

    def cost(worker: PrefillCandidate) -> tuple[bool, float, int, str]:
        link = links[worker.worker_id]
        compute_s = (worker.outstanding_tokens + prompt_tokens) / speed
        transfer_s = prompt_tokens * kv_bytes_per_token / (link.bytes_per_s or ASSUMED_LINK_BYTES_PER_S)
        return worker.worker_id in avoid, compute_s + transfer_s, link.rank, worker.worker_id

    if not linked:
        return None
    first = min(linked, key=cost)
    far, last_s = links[first.worker_id].distance, _as_early_s(cost(first)[1])
    nearer = [worker for worker in linked if links[worker.worker_id].distance < far]
    alike = [worker for worker in nearer if cost(worker)[0] == cost(first)[0] and cost(worker)[1] <= last_s]
    return min(alike, key=lambda worker: (links[worker.worker_id].distance, cost(worker)), default=first).worker_id


def in_turn(prompt_tokens: int, prefills: Collection[PrefillCandidate]) -> list[tuple[float, str]]:
    """When each would have computed the prompt, the first one first."""
    speed = _speed(prefills)
    return sorted([((one.outstanding_tokens + prompt_tokens) / speed, one.worker_id) for one in prefills])


def away(turns: Sequence[tuple[float, str]], links: Links, decode: str) -> Distance:
    """How far the one is from `decode` that would be chosen if all links were as fast. Of many, only those that come into
    question are looked at."""
    last_s, nearest = inf, Distance.APART
    for compute_s, worker_id in turns:
        if compute_s > last_s or nearest is Distance.DOMAIN:
            break
        if worker_id == decode or (link := links.get(worker_id)) is None:
            continue
        last_s, nearest = min(last_s, _as_early_s(compute_s)), min(nearest, link.distance)
    return nearest


def _speed(workers: Collection[PrefillCandidate]) -> float:
    return max((worker.tokens_per_s for worker in workers), default=0.0) or ASSUMED_PREFILL_TOKENS_PER_S


def _as_early_s(first_s: float) -> float:
    return first_s * (1 + _ALIKE) + _ALIKE_S
