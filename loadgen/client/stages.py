"""The five stages of a request, from the breakdown that tandem's gateway adds on request."""

from typing import Any

#: Asks for it; other servers ignore the header.
ASK = {"X-Tandem-Timing": "1"}
STAGES = ("queue", "prefill", "transfer", "decode_queue", "decode")


def stages_of(breakdown: dict[str, Any]) -> dict[str, float]:
    """Seconds per stage. They add up to the gateway's total: decode is what the others leave of it."""
    try:
        spent = {name: float(seconds) for name, seconds in breakdown["stages_s"].items()}
        waited, computed, moved, queued, total = (
            float(breakdown[name])
            for name in ("prefill_queue_s", "prefill_compute_s", "transfer_s", "decode_queue_s", "total_s")
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    found = {
        "queue": sum(spent.get(name, 0.0) for name in ("prepare", "queue", "reserve")) + waited,
        "prefill": max(spent.get("prefill", 0.0) - waited, 0.0) or computed,
        "transfer": moved,
        "decode_queue": queued,
    }
    return found | {"decode": max(0.0, total - sum(found.values()))}
