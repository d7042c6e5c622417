"""What host memory beside the engines is worth: the same requests with less and more of it, and over slower and faster links.

    python -m benchmarks.host_memory                      # mooncake-like and chat sessions on two colocated H200s
    python -m benchmarks.host_memory --workload "TRACE.csv.gz arrivals=…" --rate 2

Virtual time: figures of a model. `saved` is what prompts would have taken alone, less what loads took. A tier that moves
bytes and wins no time, or reads less than a hundredth of what it writes, is called harmful.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from engine.simulated.host_memory import HostCounters, together
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.schedule import Plan, Schedule, Sessions, build
from loadgen.simulate import Outcome, parse_layout, simulate
from loadgen.workload.spec import Catalogue

_LAYOUT = "--profile h200-sxm/qwen3-32b --colocated 2"
_TIERS = ("", "64GiB:50GBps", "512GiB:50GBps", "512GiB:5GBps", "512GiB:1GBps")
_TRAFFIC = (("mooncake-like", 1.0, 600.0), ("chat-sessions", 8.0, 600.0))


@dataclass(frozen=True, slots=True)
class Row:
    """`hbm` and `host`: shares of all prompt tokens that were found there."""

    tier: str
    hbm: float
    host: float
    moved: HostCounters
    ttft_p50_ms: float
    ttft_p99_ms: float

    @classmethod
    def of(cls, tier: str, outcome: Outcome) -> "Row":
        moved = together([worker.host for worker in outcome.workers if worker.host is not None])
        prompts = sum(worker.prompt_tokens for worker in outcome.workers) or 1
        cached = sum(worker.cached_prompt_tokens for worker in outcome.workers)
        ttft = [r.ttft_s * 1e3 for r in outcome.results if r.completed and r.ttft_s is not None] or [0.0]
        p50, p99 = (float(value) for value in np.percentile(ttft, (50, 99)))
        return cls(
            tier or "none", (cached - moved.loaded_tokens) / prompts, moved.loaded_tokens / prompts, moved, p50, p99
        )

    @property
    def cells(self) -> list[str]:
        moved = self.moved
        return [
            self.tier,
            f"{self.hbm:.1%}",
            f"{self.host:.1%}",
            f"{moved.out_bytes / 1e9:,.0f}",
            f"{moved.in_bytes / 1e9:,.0f}",
            f"{moved.tokens_per_byte * 1e6:.2f}",
            f"{moved.saved_s:,.1f}",
            f"{self.ttft_p50_ms:,.0f}",
            f"{self.ttft_p99_ms:,.0f}",
            "harmful" if moved.harmful else "",
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layout", default=_LAYOUT)
    parser.add_argument("--workload", default="", help="instead of both")
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--duration", type=float, default=600.0)
    given = parser.parse_args()
    traffic = ((given.workload, given.rate, given.duration),) if given.workload else _TRAFFIC
    for workload, rate, duration_s in traffic:
        schedule = requests(workload, rate, duration_s)
        title = f"{workload}, {rate:g} requests/s for {duration_s:g} s, {given.layout}"
        Console(width=150).print(table(title, [row(given.layout, tier, schedule) for tier in _TIERS]))


def requests(workload: str, rate: float, duration_s: float) -> Schedule:
    arrivals = Arrivals(Kind.POISSON, rate=rate)
    mix = Catalogue(None).mix([workload])
    return build(Plan(mix, arrivals, duration_s=duration_s, sessions=Sessions.PACED))


def row(layout: str, tier: str, schedule: Schedule) -> Row:
    words = f"{layout} --host-memory {tier}" if tier else layout
    return Row.of(tier, simulate(parse_layout(words, float("inf")), schedule))


def table(title: str, rows: Sequence[Row]) -> Table:
    made = Table(title=title, title_justify="left", box=None)
    for name in (
        "host memory", "in HBM", "on host", "GB out", "GB in", "tokens/MB", "saved s", "TTFT p50", "p99 ms", "",
    ):  # fmt: skip
        made.add_column(name, justify="left" if name == "host memory" else "right")
    for one in rows:
        made.add_row(*one.cells)
    return made


if __name__ == "__main__":
    main()
