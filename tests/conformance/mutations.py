"""Shows that the conformance tests can fail: breaks the product in a copy of the tree, one fault at a time.

    python -m tests.conformance.mutations            all of them; the results go into results.json
    python -m tests.conformance.mutations B-01 B-31  only these

The working tree is never touched. A test that stays green under its mutation is reported and makes this exit 1.
"""

import argparse
import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.catalogue import ROOT
from tests.conformance.results import Results

LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Mutation:
    """`fault` in words; `old` occurs exactly once in `file`; `test` must pass without and fail with it."""

    id: str
    fault: str
    file: str
    old: str
    new: str
    test: str

    @property
    def key(self) -> str:
        """Changes with anything that the result depends on, but for the test's own text."""
        parts = "\0".join((self.id, self.file, self.old, self.new, self.test))
        return f"{self.id} {hashlib.sha256(parts.encode()).hexdigest()[:12]}"

    def objection(self, root: Path = ROOT) -> str:
        """Why it does not fit the tree any more; empty if it does."""
        count = (root / self.file).read_text().count(self.old)
        return "" if count == 1 else f"{self.id}: {self.old!r} occurs {count} times in {self.file}"


def copy_tree(target: Path, committed: bool) -> None:
    """Everything that git knows or would know, as it is in the working tree; or as it was committed last."""
    if committed:
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x"], cwd=target, check=True, input=archive)
        return
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


async def passes(tree: Path, test: str) -> tuple[bool, str]:
    """Whether the one test passes there, and the end of what it said."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    arguments = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", f"--timeout={LIMIT_S}", test]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=tree,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    if process.returncode not in (0, 1):
        # Not collected, or killed by its own time limit: the latter is a failure of the test, too.
        assert b"Timeout" in said, said.decode()[-2000:]
    return process.returncode == 0, said.decode()[-600:]


async def show(mutation: Mutation, tree: Path) -> bool:
    """Whether the test is green before and red after."""
    file = tree / mutation.file
    text = file.read_text()
    green, said = await passes(tree, mutation.test)
    if not green:
        print(f"{mutation.id}: red without any mutation: {mutation.test}\n{said}", flush=True)
        return False
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        still_green, _ = await passes(tree, mutation.test)
    finally:
        file.write_text(text)
    print(f"{mutation.id}: {'STAYS GREEN' if still_green else 'red'}: {mutation.fault}", flush=True)
    return not still_green


async def show_all(chosen: Sequence[Mutation], jobs: int, committed: bool, results: Results) -> bool:
    queue = list(reversed(chosen))
    shown: list[bool] = []

    async def work() -> None:
        with tempfile.TemporaryDirectory(prefix="mutated-") as name:
            copy_tree(Path(name), committed)
            while queue:
                mutation = queue.pop()
                red = await show(mutation, Path(name))
                results.mutations[mutation.key] = red
                shown.append(red)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(jobs):
            tasks.create_task(work())
    return all(shown)


def main() -> int:
    from tests.conformance.mutants import MUTATIONS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", help="rows, such as B-01; all if none is named")
    parser.add_argument("--jobs", type=int, default=2, help="copies of the tree that work side by side")
    parser.add_argument("--committed", action="store_true", help="copy the last commit instead of the working tree")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if not options.ids or mutation.id in options.ids]
    if objections := [objection for mutation in chosen if (objection := mutation.objection())]:
        print("\n".join(objections))
        return 1
    results = Results.load()
    results.mutations = {mutation.key: results.mutations.get(mutation.key, False) for mutation in MUTATIONS}
    whole = asyncio.run(show_all(chosen, options.jobs, options.committed, results))
    results.save()
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
