"""Our sampling as vLLM's."""

import math
from typing import Any

from proto.sampling import Sampling, StructuredKind, StructuredOutput

_MIN_SEED, _MAX_SEED = -(2**63), 2**63 - 1


def to_vllm(sampling: Sampling, kv_transfer: dict[str, Any] | None = None) -> Any:
    """vLLM's SamplingParams; raises its validation errors, which are ValueErrors in spirit.

    No text comes out of the engine: stop strings and detokenization live in the gateway.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    if sampling.seed is not None and not _MIN_SEED <= sampling.seed <= _MAX_SEED:
        raise ValueError("seed does not fit 64 bits")  # the sampler would fail, and the whole engine with it
    if not all(math.isfinite(bias) for _, bias in sampling.logit_bias):
        raise ValueError("logit_bias is not a finite number")
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        seed=sampling.seed,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=sampling.ignore_eos,
        logit_bias=dict(sampling.logit_bias) or None,
        logprobs=sampling.logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
        structured_outputs=None if sampling.structured is None else _structured(sampling.structured),
        extra_args=None if kv_transfer is None else {"kv_transfer_params": kv_transfer},
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        skip_clone=True,  # made for one request and handed over
    )


def _structured(wanted: StructuredOutput) -> Any:
    from vllm.sampling_params import StructuredOutputsParams

    if wanted.kind is StructuredKind.JSON_OBJECT:
        return StructuredOutputsParams(json_object=True)
    return StructuredOutputsParams(json=wanted.json_schema)
