"""How many random cases show that fast mode and step-by-step mode are the same, by running the tests that say so."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ENGINES = "tests/property/test_virtual_time.py::test_strides_and_single_steps_agree_on_every_event_time_and_block"
FLEETS = (
    "tests/loadgen/simulate/test_agreement.py::test_fast_mode_equals_single_steps_exactly_and_keeps_accounts",
    "tests/loadgen/simulate/test_agreement.py::test_so_it_does_where_much_goes_wrong",
)
LEAST = 40
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Exact:
    """Random cases that agreed: of one engine, and of whole fleets. `failed`: whether any did not."""

    engines: int
    fleets: int
    failed: bool

    @property
    def holds(self) -> bool:
        return not self.failed and min(self.engines, self.fleets) >= LEAST


def run() -> Exact:
    engines, engines_text = _pytest("--hypothesis-show-statistics", ENGINES)
    fleets, fleets_text = _pytest(*FLEETS)
    return Exact(cases(engines_text), passed(fleets_text), failed=bool(engines or fleets))


def cases(text: str) -> int:
    """Of one property test, by hypothesis' own count; what it found again from an earlier run included."""
    return sum(int(number) for number in re.findall(r"(\d+) passing", text))


def passed(text: str) -> int:
    found = re.search(r"(\d+) passed", text)
    return int(found[1]) if found else 0


def _pytest(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
