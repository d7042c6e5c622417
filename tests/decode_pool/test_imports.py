"""Decision 0012: the decode pool uses the gateway's admission policy, and of the gateway nothing more."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEAF = ("gateway.policy.admission", "gateway.policy.estimate")


def imported(package: str) -> Iterator[tuple[str, str]]:
    """(file, module) of every import of a package."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield path.name, node.module
            elif isinstance(node, ast.Import):
                yield from ((path.name, alias.name) for alias in node.names)


def test_the_decode_pool_uses_only_the_policy_leaf_of_the_gateway() -> None:
    strays = [entry for entry in imported("decode_pool") if entry[1].startswith("gateway")]
    assert [entry for entry in strays if not entry[1].startswith(LEAF)] == []
    assert strays  # or this test, and the decision, are out of date


def test_the_policy_leaf_imports_nothing_of_the_project_but_itself() -> None:
    own = ("decode_pool", "engine", "gateway", "loadgen", "prefill_pool", "proto", "tandem", "tests", "transfer")
    for package in ("gateway/policy/admission", "gateway/policy/estimate"):
        strays = [(path, name) for path, name in imported(package) if name.split(".")[0] in own]
        assert [entry for entry in strays if not entry[1].startswith(LEAF)] == []
