"""Which server the official client talks to.

By default a simulated one inside the test process. TANDEM_BASE_URL (http://host:port, without /v1) runs the
same tests against any other, TANDEM_API_KEY names the key it wants.
"""

import os
from collections.abc import Iterator

import httpx
import pytest
from openai import DefaultHttpxClient, OpenAI

from tests.openai_client.stack import simulated_stack


@pytest.fixture(scope="session")
def base_url() -> Iterator[str]:
    given = os.environ.get("TANDEM_BASE_URL", "").rstrip("/")
    if given:
        yield given
        return
    with simulated_stack() as stack:
        yield stack.url


@pytest.fixture(scope="session")
def client(base_url: str) -> Iterator[OpenAI]:
    key = os.environ.get("TANDEM_API_KEY", "none")
    http = DefaultHttpxClient(trust_env=False)
    with OpenAI(base_url=f"{base_url}/v1", api_key=key, max_retries=0, timeout=120, http_client=http) as made:
        yield made


@pytest.fixture(scope="session")
def plain(base_url: str) -> Iterator[httpx.Client]:
    """For what the client has no method for."""
    key = os.environ.get("TANDEM_API_KEY", "none")
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=base_url, headers=headers, timeout=120, trust_env=False) as made:
        yield made


@pytest.fixture(scope="session")
def model(client: OpenAI) -> str:
    return client.models.list().data[0].id
