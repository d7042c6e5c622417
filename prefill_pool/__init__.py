"""The prefill pool: prompts computed, and their KV pinned for a reader."""

from prefill_pool.service import PrefillService

__all__ = ["PrefillService"]
