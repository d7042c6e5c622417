"""The rows that must have tests, and the tests that carry their ids."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_IDS = re.compile(r"test_((?:b\d+_)*(?:to_b\d+_)?(?:b\d+_)*)")


@dataclass(frozen=True, slots=True)
class Row:
    """One fault. `kind`: F simulated engine, E real engine, L load generator."""

    id: str
    kind: str
    section: str
    input: str
    wrong: str
    right: str

    @property
    def number(self) -> int:
        return int(self.id.removeprefix("B-"))


@dataclass(frozen=True, slots=True)
class Test:
    """One test function, parameters apart. `engine` says that it needs the real one, `soak` that it takes an hour."""

    __test__ = False

    file: str
    name: str
    engine: bool
    soak: bool

    @property
    def node(self) -> str:
        return f"{self.file}::{self.name}"


@cache
def rows() -> tuple[Row, ...]:
    return tuple(Row(**entry) for entry in yaml.safe_load((HERE / "catalogue.yaml").read_text()))


def numbers(name: str) -> set[int]:
    """The ids in a test's name: test_b01_b02_..., or test_b01_to_b06_... for all between."""
    match = _IDS.match(name)
    if match is None or not match[1]:
        return set()
    found = [int(number) for number in re.findall(r"b(\d+)_", match[1])]
    return set(range(found[0], found[-1] + 1)) if "_to_" in match[1] else set(found)


@cache
def in_order() -> tuple[Test, ...]:
    """All that carry ids, as their files have them: some stacks are stopped by their last test."""
    known = {row.number for row in rows()}
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return tuple(test for file in files for test in _tests_in(file) if numbers(test.name) & known)


def tests() -> dict[int, list[Test]]:
    """By the number of the row."""
    found: dict[int, list[Test]] = {}
    for test in in_order():
        for number in numbers(test.name):
            found.setdefault(number, []).append(test)
    return found


def _tests_in(file: Path) -> Iterator[Test]:
    text = file.read_text()
    engine = bool(re.search(r"^pytestmark\b.*\bmark\.engine\b", text, re.MULTILINE))
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = " ".join(map(ast.unparse, node.decorator_list))
            needed = engine or "mark.engine" in marks
            yield Test(file.relative_to(ROOT).as_posix(), node.name, needed, "mark.soak" in marks)
