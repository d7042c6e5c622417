"""Two checkouts over one environment: the last that installed wins, and the other is told so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def said(installed: str, site: Path) -> str:
    """What make says where the checkout at the URL `installed` is the one that the environment runs."""
    facts = site / "tandem_serve-9.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: tandem-serve\nVersion: 9\n")
    (facts / "direct_url.json").write_text(json.dumps({"url": installed, "dir_info": {"editable": True}}))
    command = [sys.executable, str(ROOT / "requirements/whose.py")]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, check=True
    )
    return done.stderr


@pytest.mark.parametrize("folder", ["other", "other one"])
def test_the_code_of_another_checkout_is_named(tmp_path: Path, folder: str) -> None:
    other = tmp_path / folder
    other.mkdir()
    assert f"is also the environment of {other}, and runs its code" in said(other.as_uri(), tmp_path / "site")


def test_ones_own_is_no_news(tmp_path: Path) -> None:
    assert said(ROOT.as_uri(), tmp_path / "site") == ""


def test_make_asks_before_it_installs() -> None:
    planned = subprocess.run(["make", "-n", "install"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "requirements/whose.py" in planned
