"""GET /tandem/v1/traffic: for operators, with words that it knows."""

import math

import pytest

from gateway.app import assemble
from gateway.config import GatewayConfig
from gateway.http.version import VERSION
from tests.gateway.http.scripted import says, site

KEYS = {"api_keys": {"acme": "s3cret", "ops": "0perator"}, "operators": ["ops"]}


@pytest.mark.parametrize(
    ("query", "wanted"),
    [("", (math.inf, False)), ("?rows=1&within_s=60", (60.0, True)), ("?rows=0", (math.inf, False))],
)
async def test_how_much_is_asked_for(query: str, wanted: tuple[float, bool]) -> None:
    asked = []
    async with site(says("a")) as at:
        at.surface.traffic = lambda within_s, rows: asked.append((within_s, rows)) or {}  # type: ignore[func-returns-value]  # it is what is asked that counts
        reply = await at.client.get(f"/tandem/v1/traffic{query}")
    assert reply.status_code == 200
    assert asked == [wanted]


@pytest.mark.parametrize("query", ["?rows=2", "?within_s=0", "?within_s=nan", "?within_s=soon", "?since=5"])
async def test_other_words_are_refused(query: str) -> None:
    async with site(says("a")) as at:
        reply = await at.client.get(f"/tandem/v1/traffic{query}")
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")


async def test_it_is_for_operators() -> None:
    async with site(says("a"), settings=KEYS) as at:
        codes = [
            (await at.client.get("/tandem/v1/traffic", headers={"authorization": f"Bearer {key}"})).status_code
            for key in ("s3cret", "0perator")
        ]
    assert codes == [403, 200]


async def test_it_says_which_gateway_has_told() -> None:
    """Behind a load balancer there are several, whose accounts are added up: each once, and of one version."""
    made = assemble(GatewayConfig.model_validate({"gateway_id": "gw-7", "model": "qwen3-32b"}))
    told = made.surface.traffic(math.inf, True)
    assert told["gateway"] == {"id": "gw-7", "version": VERSION, "model": "qwen3-32b"}
    made.surface.texts.close()
