"""One rule says who can read whose KV, and everybody asks it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from engine.config import Link
from engine.vllm.warm import warm_pair
from tests.workers import worker_info
from transfer.compatibility import incompatibilities


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"model_hash": "x"}, "model hash differs: p has x, d has h"),
        ({"revision": "x"}, "revision"),
        ({"dtype": "bfloat16"}, "dtype"),
        ({"kv_layout": "HND"}, "KV layout"),
        ({"block_size_tokens": 32}, "block size"),
        ({"engine": "vllm"}, "engine"),
        ({"engine_version": "2"}, "engine version"),
        ({"tp": 2}, "do not divide"),
        ({"pp": 2}, "pipeline"),
    ],
)
def test_b62_b64_a_pair_that_does_not_match_is_refused_with_the_reason(more: dict[str, Any], words: str) -> None:
    reasons = incompatibilities(worker_info("p", **more), worker_info("d", tp=3 if "tp" in more else 1))
    assert len(reasons) == 1
    assert words in reasons[0]


@pytest.mark.parametrize(("one", "other"), [(1, 1), (1, 2), (2, 1), (4, 2), (8, 1)])
def test_tensor_parallel_degrees_that_divide_match(one: int, other: int) -> None:
    assert incompatibilities(worker_info("p", tp=one), worker_info("d", tp=other)) == []


@pytest.mark.parametrize(
    "more", [{"revision": "x"}, {"pp": 2}, {"kv_layout": "HND"}, {"tp": 3}], ids=["revision", "pp", "layout", "tp"]
)
async def test_the_engine_refuses_a_hand_shake_by_the_same_rule(more: dict[str, Any]) -> None:
    peer = replace(worker_info("p", tp=2), peer_params=json.dumps({}).encode())
    own = worker_info("d", **{"tp": 2, **more})

    async def never(_: dict[str, Any]) -> list[Any]:
        raise AssertionError("a pair that does not match shakes no hands")

    result = await warm_pair(own, peer, Link.AUTO, never)
    assert not result.ok
    assert result.detail == "; ".join(incompatibilities(peer, own)) != ""
