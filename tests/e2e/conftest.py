"""Stacks on the real engine, started once for many tests: an engine start costs half a minute on two cores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import READY_WITHIN_S, Stack, up
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


@pytest.fixture(scope="session")
def both(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two workers that do either phase, with KV for eight of the longest answers each."""
    run_dir = tmp_path_factory.mktemp("both")
    with up(run_dir, *("--model", str(tiny_model), "--colocated", "2", "--set", "engine.kv_blocks=64")) as stack:
        # one worker is enough for its gateway to be ready
        stack.wait("two workers", lambda s: [w["status"] for w in s["workers"]] == ["ready"] * 2, READY_WITHIN_S)
        yield stack
