"""What bounds an engine and each of its steps."""

from dataclasses import dataclass

from engine.simulated.waiting import Policy


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a step. `blocks` are usable ones; the watermark is kept free when admitting beside others."""

    block_size: int
    blocks: int
    max_num_seqs: int
    max_batched_tokens: int
    max_model_len: int
    long_prefill_threshold: int = 0
    watermark_blocks: int = 0
    policy: Policy = Policy.FCFS
    caching: bool = True
    whole_prompt_must_fit: bool = True
