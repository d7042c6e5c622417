"""Who prefills a prompt that is handed off. Pure."""

from collections.abc import Collection

from gateway.policy.routing import Links, PrefillCandidate

#: Used until a worker's own speed has been seen.
ASSUMED_PREFILL_TOKENS_PER_S = 5_000.0
ASSUMED_LINK_BYTES_PER_S = 1e9


def choose_prefill(
    prompt_tokens: int,
    kv_bytes_per_token: int,
    candidates: Collection[PrefillCandidate],
    links: Links,
    avoid: Collection[str] = (),
) -> str | None:
    """The prefill worker whose KV is predicted to arrive first; None when no candidate has a usable pair.

    The fewest outstanding prompt tokens, priced at one speed for all, plus the link's time; its rank breaks ties.
    One speed, because each worker's own is only measured when it is used: a bad first figure would bar it for ever.
    """
    linked = [worker for worker in candidates if worker.worker_id in links]
    speed = max((worker.tokens_per_s for worker in linked), default=0.0) or ASSUMED_PREFILL_TOKENS_PER_S

    def cost(worker: PrefillCandidate) -> tuple[bool, float, int, str]:
        link = links[worker.worker_id]
        compute_s = (worker.outstanding_tokens + prompt_tokens) / speed
        transfer_s = prompt_tokens * kv_bytes_per_token / (link.bytes_per_s or ASSUMED_LINK_BYTES_PER_S)
        return worker.worker_id in avoid, compute_s + transfer_s, link.rank, worker.worker_id

    return min(linked, key=cost).worker_id if linked else None
