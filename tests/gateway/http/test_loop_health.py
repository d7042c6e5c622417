"""The event loop answers probes while threads tokenize (B-58)."""

import asyncio
import threading
from pathlib import Path

import httpx
import pytest

from gateway.http import body
from tests.gateway.http.scripted import FakeCluster, says, site, worker_info
from tests.gateway.text.conftest import byte_level, write
from tests.waiting import HANG_S

PROMPT = "the quick brown fox 日本語 " * 60_000


@pytest.mark.slow
async def test_b58_liveness_goes_on_while_400k_token_prompts_are_prepared(tmp_path: Path) -> None:
    """A loop that does the work itself answers once or twice in all that time."""
    directory = write(tmp_path, byte_level())
    settings = {"tokenizer": str(directory), "tokenizer_threads": 1}
    cluster = FakeCluster(worker_info(1_000_000))
    async with site(says("a"), cluster=cluster, on_socket=True, settings=settings) as at:
        posts = [asyncio.ensure_future(at.complete(PROMPT)) for _ in range(2)]
        alive = 0
        async with httpx.AsyncClient(base_url=at.url, timeout=HANG_S, trust_env=False) as probe:
            while not all(post.done() for post in posts):
                assert (await probe.get("/livez")).status_code == 200
                alive += 1
                await asyncio.sleep(0.002)
        replies = await asyncio.gather(*posts)
    assert all(reply.json()["usage"]["prompt_tokens"] > 400_000 for reply in replies)
    assert alive > 10


@pytest.mark.parametrize(("messages", "aside"), [(1, False), (5_000, True)])
async def test_a_large_body_is_parsed_in_a_thread(messages: int, aside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    parse = body.parse

    def watched(data: bytes, form: type[body.Form]) -> body.Form:
        threads.append(threading.current_thread().name)
        return parse(data, form)

    monkeypatch.setattr(body, "parse", watched)
    async with site(says("a"), cluster=FakeCluster(worker_info(1_000_000))) as at:
        turns = [{"role": "user", "content": "x"}] * messages
        assert (await at.chat(messages=turns)).status_code == 200
        assert (await at.client.post("/tokenize", json={"messages": turns})).status_code == 200
    assert [name.startswith("text") for name in threads] == [aside, aside]
