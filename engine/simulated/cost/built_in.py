"""Profiles that need no table."""

from engine.simulated.cost.linear import LinearCost
from engine.simulated.cost.profile import Link, Profile

#: Loopback and one fast fabric, so that the built-in profiles can show slow and fast hand-offs.
_LINKS = {"tcp": Link(1.2e9, 200e-6), "nvlink": Link(450e9, 10e-6)}

#: `toy`: 2 ms a step, 50,000 prompt tokens a second. `instant`: no time at all, for measuring everything else.
BUILT_IN = {
    "toy": LinearCost(base_s=2e-3, token_s=20e-6, context_token_s=20e-9, token_pair_s=1e-9),
    "instant": LinearCost(),
}


def built_in(name: str, tp: int, pp: int) -> Profile:
    return Profile(
        name=name,
        model=name,
        device="simulated",
        dtype="bfloat16",
        tp=tp,
        pp=pp,
        ep=1,
        block_size_tokens=16,
        blocks_total=4096,
        kv_bytes_per_token=23_040,
        max_model_len=8192,
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        vocab_size=49_152,
        eos_token_ids=(2,),
        cost=BUILT_IN[name],
        links=_LINKS,
    )
