"""A day of a reasoning service on 64 GPUs in virtual time: CPU seconds, and memory over the length of the trace.

    python -m benchmarks.simulated_day                # 1.38 million requests: 24 hours at 16 a second
    python -m benchmarks.simulated_day --hours 1

Lengths and burstiness are the day-wide ones of ServeGen's deepseek-r1 pool (`r1-production`); its rate over the hours is not
followed. Requests are drawn as they are sent and results are counted, not kept. CPU time of one process. Bound: 600 s a day.
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path

from loadgen.arrivals.process import Arrivals, Kind
from loadgen.result import Ending, Result
from loadgen.simulate import parse_layout, simulate_stream
from loadgen.stream import Stream
from loadgen.workload.family import shipped
from loadgen.workload.spec import Catalogue

_FAMILY = "r1-production"
_PAGE_KB = 4
#: Memory is looked at when so many parts of all requests have ended.
_LOOKS = 8


@dataclass(slots=True)
class Tally:
    """`memory_mb` by the number of requests that had ended."""

    every: int
    ended: int = 0
    completed: int = 0
    tokens: int = 0
    memory_mb: dict[int, float] = field(default_factory=dict)

    def take(self, result: Result) -> None:
        self.ended += 1
        self.completed += result.ending is Ending.COMPLETED
        self.tokens += result.output_tokens
        if self.ended % self.every == 0:
            self.memory_mb[self.ended] = _resident_mb()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--gpus", type=int, default=64)
    given = parser.parse_args()
    source = shipped()[_FAMILY].arrivals
    rate, shape = source["rate"], 1 / source["gap_cv"] ** 2
    count = round(rate * 3600 * given.hours)
    stream = Stream(Catalogue().mix([_FAMILY]), Arrivals(Kind.GAMMA, rate, shape), count)
    layout = parse_layout(f"--profile h200-sxm/llama-3.1-8b --colocated {given.gpus}", 600.0)
    tally, begun = Tally(max(1, count // _LOOKS)), time.process_time()
    outcome = simulate_stream(layout, stream, tally.take)
    spent = time.process_time() - begun
    print(f"{count:,} requests over {outcome.duration_s / 3600:.1f} h on {given.gpus} GPUs: {spent:.1f} s of CPU time")
    print(f"{count / spent:,.0f} requests/s, {tally.tokens / spent:,.0f} tokens/s; {tally.completed:,} completed")
    print("memory, MB: " + ", ".join(f"{mb:.0f} after {ended:,}" for ended, mb in tally.memory_mb.items()))


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_KB / 1024


if __name__ == "__main__":
    main()
