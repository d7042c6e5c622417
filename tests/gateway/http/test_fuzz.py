"""Whatever a client sends, real workers included behind the gateway: a clear answer, never a 5xx, and nothing is kept."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from schemathesis import GenerationMode

from proto.worker import Role
from tests.gateway.http.fuzzing import ALL, BODIES, QUICK, RARE, fuzz, operations, try_nested, try_parameters
from tests.openai_client.stack import simulated_stack
from tests.waiting import HANG_S, await_true

GENERATION = ("/v1/chat/completions", "/v1/completions")
LAYOUTS = [
    pytest.param((Role.PREFILL, Role.DECODE), id="handed off"),
    pytest.param((Role.BOTH,), id="colocated", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=LAYOUTS)
def client(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with (
        simulated_stack(*request.param, speedup=20) as stack,
        httpx.Client(base_url=stack.url, timeout=HANG_S, trust_env=False) as made,
    ):
        yield made
        await_true(lambda: not any(held(made).values()), otherwise=lambda: held(made))  # releases take a moment


def held(client: httpx.Client) -> dict[str, Any]:
    integrity: dict[str, Any] = client.get("/tandem/v1/status").json()["integrity"]
    return integrity


@pytest.mark.slow
@pytest.mark.parametrize("path", BODIES)
def test_b06_no_boundary_value_of_any_parameter_is_answered_with_5xx(client: httpx.Client, path: str) -> None:
    tally = try_parameters(client, path, QUICK)
    assert not tally.faults
    assert tally.statuses.keys() >= {200, 400}


@pytest.mark.slow
def test_no_boundary_value_within_a_parameter_is_answered_with_5xx(client: httpx.Client) -> None:
    tally = try_nested(client, "/v1/chat/completions", QUICK)
    assert not tally.faults
    assert tally.statuses.keys() >= {200, 400}


@pytest.mark.slow
@pytest.mark.parametrize("path", GENERATION)
def test_rarer_boundary_values_are_not_answered_with_5xx(client: httpx.Client, path: str) -> None:
    faults = try_parameters(client, path, RARE).faults + try_nested(client, path, ALL).faults
    assert not faults


@pytest.mark.slow
@pytest.mark.parametrize("path", GENERATION)
def test_random_bodies_are_never_answered_with_5xx(client: httpx.Client, path: str) -> None:
    operation = next(one for one in operations(str(client.base_url).rstrip("/")) if one.path == path)
    valid = fuzz(operation, GenerationMode.POSITIVE, 20, {"model": "sim", "max_tokens": 3})
    invalid = fuzz(operation, GenerationMode.NEGATIVE, 10, {})
    assert 200 in valid
    assert 400 in invalid
