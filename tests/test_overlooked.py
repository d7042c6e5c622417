"""What a checker is told to overlook says why: without a reason nobody can tell whether it still holds."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: A word to mypy with nothing behind it.
_BARE = re.compile(r"# type: ignore(\[[a-z, -]+\])?\s*$")


def bare(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if _BARE.search(line)]


def test_a_word_to_the_type_checker_has_its_reason_behind_it() -> None:
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["packages"]
    written = [file for name in checked for file in (ROOT / name).rglob("*.py") if "_pb2" not in file.name]
    assert len(written) > 500
    assert {str(file): found for file in written if (found := bare(file.read_text(encoding="utf-8")))} == {}


def test_one_without_is_found() -> None:
    word = "# type: " + "ignore"
    assert bare(f"x = 1  {word}[misc]\ny = 2  {word}\nz = 3  {word}[misc]  # so it is") == [
        f"x = 1  {word}[misc]",
        f"y = 2  {word}",
    ]
