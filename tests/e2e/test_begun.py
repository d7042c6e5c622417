"""Hand-off after several tokens on the real engine: the stock connector carries a sequence that has generated."""

import httpx
import pytest

from tests.e2e.answers import complete, completion, prompt, texts
from tests.e2e.stack import Stack, another_gateway, colocated_gateway
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

#: The CPU engine's KV block.
BLOCK = 128
FIRST = 6
ANSWER_TOKENS = 20
#: In the middle of a block, and where prompt and first tokens end on its boundary or one off it.
LENGTHS = (1, 40, BLOCK - FIRST - 1, BLOCK - FIRST, BLOCK - FIRST + 1, BLOCK - 1, BLOCK, BLOCK + 1, 300)
SETTINGS = ("gateway.routing.local_prefill_below_tokens=0", f"gateway.routing.handoff_after_tokens={FIRST}")


async def test_answers_equal_the_colocated_ones_and_kv_moves(pair: Stack) -> None:
    bodies = [completion(prompt(length, seed=length), ANSWER_TOKENS, cache_salt="begun") for length in LENGTHS]
    with another_gateway(pair, ("prefill-0", "decode-0"), *SETTINGS) as gateway:
        gateway.wait("the pair", lambda s: [p["state"] for p in s["pairs"]] == ["usable"], HANG_S)
        before, bytes_before = gateway.settled_transfers(), gateway.bytes_moved()
        generated = gateway.worker("prefill-0")["generated_tokens"]
        answers = await texts(gateway.url, bodies)
        gateway.wait_transfers(before + len(bodies))
        least = generated + (FIRST - 1) * len(bodies)
        gateway.wait("its newest state", lambda _: gateway.worker("prefill-0")["generated_tokens"] >= least, HANG_S)
        begun = gateway.worker("prefill-0")["generated_tokens"] - generated
        body = completion(prompt(40, seed=40), ANSWER_TOKENS)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=HANG_S) as client:
            whole = (await complete(client, body | {"return_token_ids": True}))["choices"][0]["token_ids"]
            moved = gateway.settled_transfers()
            stopped = await complete(client, body | {"stop_token_ids": [whole[2]]})
        assert stopped["choices"][0]["finish_reason"] == "stop"
        assert stopped["usage"]["completion_tokens"] == whole.index(whole[2]) + 1
        assert gateway.settled_transfers() == moved  # it ended on the prefill worker
        moves, prefill = gateway.pairs()[0], gateway.worker("prefill-0")
    with colocated_gateway(pair, "decode-0") as reference_url:
        expected = await texts(reference_url, [body | {"cache_salt": "reference"} for body in bodies])

    assert answers == expected
    assert moves["bytes"] > bytes_before
    assert moves["failures"] == 0
    assert begun <= (FIRST + 1) * len(bodies)
    assert prefill["consecutive_faults"] == 0
    assert (prefill["tickets_expired"], prefill["failed_notifications"]) == (0, 0)
