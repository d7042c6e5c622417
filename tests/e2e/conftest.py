"""Stacks on the real engine, started once for many tests: an engine start costs half a minute on two cores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, up
from tests.models import tiny_llama


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    return tiny_llama()


@pytest.fixture(scope="session")
def pair(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One prefill and one decode worker, everything handed off."""
    run_dir = tmp_path_factory.mktemp("pair")
    with up(
        run_dir,
        *("--model", str(tiny_model), "--prefill", "1", "--decode", "1", "--kv-cache-gib", "0.25"),
        *("--set", "gateway.routing.local_prefill_below_tokens=0"),
    ) as stack:
        yield stack
