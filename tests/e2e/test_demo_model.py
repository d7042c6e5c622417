"""What the README promises of the demo model, on the real engine, and the official client against it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.stack import Stack, up
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with up(tmp_path_factory.mktemp("demo"), "--prefill", "1", "--decode", "1") as stack:
        yield stack


def test_the_demo_model_answers_sensibly_over_a_hand_off(demo: Stack) -> None:
    question = {"role": "user", "content": "What is the capital of France? Answer in one sentence."}
    body = {"model": "SmolLM2-135M-Instruct", "messages": [question], "max_tokens": 32, "temperature": 0}
    reply = httpx.post(f"{demo.url}/v1/chat/completions", json=body, timeout=3 * HANG_S)
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-tandem-path"] == "remote"  # with every setting at its default (B-09)
    assert "Paris" in reply.json()["choices"][0]["message"]["content"]
    demo.wait_transfers(1)
    assert demo.bytes_moved() > 0


def test_the_official_client_passes_on_the_real_engine(demo: Stack) -> None:
    """The same file that runs against simulated engines in the quick tests."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/openai_client"],
        cwd=ROOT,
        env=os.environ | {"TANDEM_BASE_URL": demo.url},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-6000:]
    demo.wait_idle(10)
    assert demo.pairs()[0]["failures"] == 0
