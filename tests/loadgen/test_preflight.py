"""Bad targets are one line each."""

import pytest

from loadgen.client.preflight import Preflight
from loadgen.client.target import Target, base_url
from loadgen.failure import LoadgenError
from loadgen.scripted.script import Script, refusal, steady
from loadgen.scripted.server import Behaviour, serving
from tests.waiting import HANG_S


async def _refused(url: str, timeout_s: float = HANG_S, model: str = "") -> str:
    with pytest.raises(LoadgenError) as caught:
        await Preflight(Target(url, model), None, timeout_s=timeout_s).run()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.slow
async def test_bad_targets_are_one_line_each() -> None:
    assert "not reachable" in await _refused("http://127.0.0.1:9")
    async with serving(Behaviour(steady(0, 0), api_key="s")) as url:
        assert "--api-key" in await _refused(url)
    async with serving(Behaviour(steady(0, 0))) as url:
        assert "no model 'other'; it serves scripted" in await _refused(url, model="other")
        assert "say which --model" in await _refused(url + "/elsewhere/v2/x")
    async with serving(Behaviour(lambda b, n: refusal(503, "no_decode_worker"))) as url:
        assert "scripted no_decode_worker" in await _refused(url)
    async with serving(Behaviour(lambda b, n: Script())) as url:
        assert "did not end a probe" in await _refused(url, timeout_s=1)


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("http://h:1/v1/", "http://h:1"),
        ("https://h/x/v1/chat/completions", "https://h/x"),
    ],
)
def test_urls_are_taken_as_people_paste_them(given: str, base: str) -> None:
    assert base_url(given) == base


@pytest.mark.parametrize("bad", ["", "ftp://h", "http://", "http://h:99999"])
def test_malformed_urls_are_refused(bad: str) -> None:
    with pytest.raises(LoadgenError, match="not an http"):
        base_url(bad)
