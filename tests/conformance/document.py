"""docs/conformance.md: each row, what goes wrong elsewhere, its tests, and how they were shown able to fail.

python -m tests.conformance.document               prints the page
python -m tests.conformance.document --run         runs the tests that need no engine first, and keeps the results
python -m tests.conformance.document --run engine  runs those that need the real engine
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from tests.conformance.catalogue import ROOT, Row, Test, in_order, rows, tests
from tests.conformance.mutants import MUTATIONS
from tests.conformance.results import Results

HEAD = """# Conformance

Faults that users met in other gateways, routers, engines and load generators, one row each, and the tests that keep them
out of this one. The ids are those in the names of the tests. This page is generated (`make docs`); the results in it are
those of the last runs that were kept (`tests/conformance/results.json`).

* Kind: F is tested with the simulated engine, E with the real one, L is a test of the load generator.
* Tests marked † need the real engine (`make test`), those marked ‡ take their time (`make soak`) and do not count in the
  status. All others run in `make test`, and those that take no more than about half a second in `make check` too.
* Shown able to fail: the fault in words was put into a copy of the tree, and the tests went red
  (`python -m tests.conformance.mutations`; the table of faults is `tests/conformance/mutants/`).
"""


def page(results: Results) -> str:
    found = tests()
    parts = [HEAD, _summary(found, results)]
    for section, members in groupby(rows(), lambda row: row.section):
        parts.append(f"## {section}\n\n| id | kind | what goes wrong elsewhere | tests | status | shown able to fail |")
        parts.append("| --- | --- | --- | --- | --- | --- |")
        parts += [_line(row, found.get(row.number, []), results) for row in members]
        parts.append("")
    return "\n".join(parts)


def _summary(found: dict[int, list[Test]], results: Results) -> str:
    known = rows()
    passed = sum(_status(found.get(row.number, []), results) in ("pass", "† pass", "pass, † pass") for row in known)
    count = len({test.node for row in known for test in found.get(row.number, [])})
    red = sum(results.mutations.get(mutation.key, False) for mutation in MUTATIONS)
    return f"{len(known)} rows, {count} tests; {passed} rows pass; {red} of {len(MUTATIONS)} mutations turned red.\n"


def _line(row: Row, found: list[Test], results: Results) -> str:
    cells = [
        row.id,
        row.kind,
        f"{row.input}: {row.wrong}",
        _tests(found),
        _status(found, results),
        _shown(row, results),
    ]
    return f"| {' | '.join(cells)} |"


def _tests(found: list[Test]) -> str:
    lines = []
    for file, members in groupby(found, lambda test: test.file):
        names = ", ".join(
            f"`{test.name.removeprefix('test_')}`{'†' if test.engine else '‡' if test.soak else ''}" for test in members
        )
        lines.append(f"[{file.removeprefix('tests/')}](../{file}): {names}")
    return "<br>".join(lines)


def _status(found: list[Test], results: Results) -> str:
    def of(engine: bool) -> str:
        seen = {results.tests.get(test.node, "not run") for test in found if test.engine is engine and not test.soak}
        return "pass" if seen == {"passed"} else ", ".join(sorted(seen - {"passed"}))

    plain, engine = of(False), of(True)
    return ", ".join(part for part in (plain, f"† {engine}" if engine else "") if part) or "no test"


def _shown(row: Row, results: Results) -> str:
    shown = [mutation for mutation in MUTATIONS if mutation.id == row.id]
    return "<br>".join(f"{each.fault}: {'red' if results.mutations.get(each.key) else 'NOT RED'}" for each in shown)


def run(selection: str) -> Results:
    """Runs the tests of all rows with or without the engine and keeps what they gave."""
    wanted = selection == "engine"
    nodes = [test.node for test in in_order() if test.engine is wanted]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        workers = [] if wanted else ["-n", "2"]
        command = [sys.executable, "-m", "pytest", "-q", *workers, f"--junitxml={report}", "-m", "not soak", *nodes]
        subprocess.run(command, cwd=ROOT, check=False, stdout=sys.stderr)
        outcomes = _outcomes(report)
    results = Results.load()
    known = {test.node for members in tests().values() for test in members}
    results.tests = {node: result for node, result in results.tests.items() if node in known} | outcomes
    results.save()
    return results


def _outcomes(report: Path) -> dict[str, str]:
    outcomes: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("classname", "").replace(".", "/") + ".py"
        node = f"{file}::{case.get('name', '').partition('[')[0]}"
        failed = any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
        if outcomes.get(node) != "failed":
            outcomes[node] = "failed" if failed else "passed"
    return outcomes


def main(arguments: Sequence[str]) -> None:
    results = run("".join(arguments[1:])) if "--run" in arguments else Results.load()
    print(page(results), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
