"""A gateway that answers as asked to, and a folder that is not this repository."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tandem.cli.fake_gateway import FakeGateway, fake_gateway


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with fake_gateway() as running:
        yield running


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command may depend on this repository being the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
