"""The OpenAPI document, and a few random requests made from it; test_fuzz.py makes many, to real workers."""

import asyncio
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from schemathesis import GenerationMode
from starlette.routing import Route

from gateway.http.app import build_http
from proto.work import FinishReason
from tests.examples import first
from tests.gateway.http.fuzzing import BODIES, fuzz, operations
from tests.gateway.http.scripted import says, site
from tests.waiting import HANG_S

PAGE = Path(__file__).parents[3] / "docs/http-api.md"
ROUTES = {
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/livez"),
    ("GET", "/health"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/tandem/v1/status"),
    ("GET", "/tandem/v1/decisions/{request_id}"),
    ("GET", "/tandem/v1/traffic"),
    ("GET", "/tandem/v1/policy"),
    ("PUT", "/tandem/v1/policy"),
    ("POST", "/tandem/v1/policy/check"),
    ("GET", "/tandem/v1/policy/history"),
    ("POST", "/tandem/v1/policy/rollback"),
    ("GET", "/tandem/v1/policy/canary"),
    ("PUT", "/tandem/v1/policy/canary"),
    ("POST", "/tandem/v1/policy/canary/promote"),
    ("POST", "/tandem/v1/policy/canary/abort"),
    ("POST", "/tandem/v1/workers/{worker_id}/drain"),
    ("POST", "/tandem/v1/workers/{worker_id}/resume"),
    ("POST", "/tandem/v1/workers/{worker_id}/role"),
}


@dataclass
class Thread:
    """A site in a thread of its own, because the fuzzer is synchronous."""

    url: str = ""
    ready: threading.Event = field(default_factory=threading.Event)
    stop: Any = None

    async def serve(self) -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.stop = lambda: loop.call_soon_threadsafe(stopped.set)
        async with site(
            says("a", finish=FinishReason.LENGTH), on_socket=True, settings={"tool_parser": "hermes"}
        ) as at:
            self.url = at.url
            self.ready.set()
            await stopped.wait()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    served = Thread()
    thread = threading.Thread(target=lambda: asyncio.run(served.serve()))
    thread.start()
    assert served.ready.wait(HANG_S)
    yield served.url
    served.stop()
    thread.join(HANG_S)


def test_the_document_describes_every_route(url: str) -> None:
    assert {(operation.method.upper(), operation.path) for operation in operations(url)} == ROUTES


async def test_the_page_names_every_route_and_no_other() -> None:
    async with site(says("a")) as at:
        routes = [route for route in build_http(at.surface).routes if isinstance(route, Route)]
    served = {(method, unnamed(route.path)) for route in routes for method in route.methods or () if method != "HEAD"}
    assert served > {(method, unnamed(path)) for method, path in ROUTES}  # these and what FastAPI adds
    rows = [line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    named = [found for row in rows for found in re.findall(r"`([A-Z]+) (/[^`]*)`", row)]
    assert sorted((method, unnamed(path)) for method, path in named) == sorted(served)


def unnamed(path: str) -> str:
    """Whatever its parameters are called."""
    return re.sub(r"{[^}]*}", "{}", path)


@pytest.mark.parametrize("path", first(2, BODIES))
def test_valid_and_invalid_bodies_are_never_answered_with_5xx(url: str, path: str) -> None:
    operation = next(one for one in operations(url) if one.path == path)
    valid = fuzz(operation, GenerationMode.POSITIVE, 20, {"model": "toy"})
    invalid = fuzz(operation, GenerationMode.NEGATIVE, 10, {})
    assert 200 in valid
    assert 400 in invalid


def test_other_routes_are_never_answered_with_5xx(url: str) -> None:
    others = [one for one in operations(url) if not one.definition.raw.get("requestBody")]
    assert len(others) >= 8
    for operation in others:
        assert fuzz(operation, GenerationMode.POSITIVE, 3, {})
