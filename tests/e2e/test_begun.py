"""Hand-off after several tokens on the real engine: the stock connector carries a sequence that has generated."""

import httpx
import pytest

from tests.e2e.answers import complete, completion, prompt, texts
from tests.e2e.stack import colocated_gateway, up
from tests.models import tiny_llama
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

#: The CPU engine's KV block.
BLOCK = 128
FIRST = 6
ANSWER_TOKENS = 20
#: In the middle of a block, and where prompt and first tokens end on its boundary or one off it.
LENGTHS = (1, 40, BLOCK - FIRST - 1, BLOCK - FIRST, BLOCK - FIRST + 1, BLOCK - 1, BLOCK, BLOCK + 1, 300)


async def test_answers_equal_the_colocated_ones_and_kv_moves(tmp_path_factory: pytest.TempPathFactory) -> None:
    options = ("--prefill", "1", "--decode", "1", "--kv-cache-gib", "0.25", "--model", str(tiny_llama()))
    settings = ("gateway.routing.local_prefill_below_tokens=0", f"gateway.routing.handoff_after_tokens={FIRST}")
    with up(
        tmp_path_factory.mktemp("begun"), *options, *[part for one in settings for part in ("--set", one)]
    ) as stack:
        bodies = [completion(prompt(length, seed=length), ANSWER_TOKENS) for length in LENGTHS]
        generated = stack.worker("prefill-0")["generated_tokens"]
        before, bytes_before = stack.settled_transfers(), stack.bytes_moved()
        answers = await texts(stack.url, bodies)
        stack.wait_transfers(before + len(bodies))
        least = generated + (FIRST - 1) * len(bodies)
        stack.wait("its newest state", lambda _: stack.worker("prefill-0")["generated_tokens"] >= least, HANG_S)
        begun = stack.worker("prefill-0")["generated_tokens"] - generated
        body = completion(prompt(40, seed=40), ANSWER_TOKENS)
        async with httpx.AsyncClient(base_url=stack.url, timeout=HANG_S) as client:
            whole = (await complete(client, body | {"return_token_ids": True}))["choices"][0]["token_ids"]
            moved = stack.settled_transfers()
            stopped = await complete(client, body | {"stop_token_ids": [whole[2]]})
        assert stopped["choices"][0]["finish_reason"] == "stop"
        assert stopped["usage"]["completion_tokens"] == whole.index(whole[2]) + 1
        assert stack.settled_transfers() == moved  # it ended on the prefill worker
        pair, prefill = stack.pairs()[0], stack.worker("prefill-0")
        with colocated_gateway(stack, "decode-0") as reference_url:
            expected = await texts(reference_url, [body | {"cache_salt": "reference"} for body in bodies])

    assert answers == expected
    assert pair["bytes"] > bytes_before
    assert pair["failures"] == 0
    assert begun <= (FIRST + 1) * len(bodies)
    assert prefill["consecutive_faults"] == 0
    assert (prefill["tickets_expired"], prefill["failed_notifications"]) == (0, 0)
