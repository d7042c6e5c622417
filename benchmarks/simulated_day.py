"""A day of a reasoning service on 64 GPUs in virtual time: CPU seconds, and memory over the length of the trace.

    python -m benchmarks.simulated_day                # 1.38 million requests in 24 hours, 7 to 35 a second
    python -m benchmarks.simulated_day --hours 1
    python -m benchmarks.simulated_day --steady       # 16 a second, whatever the hour

Lengths and burstiness are the day-wide ones of ServeGen's deepseek-r1 pool (`r1-production`), the rate is that of the hour.
Requests are drawn as they are sent and results are counted, not kept. CPU time of one process. Bound: 600 s a day.
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path

from loadgen.arrivals.curve import RateCurve
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.result import Ending, Result
from loadgen.simulate import parse_layout, simulate_stream
from loadgen.stream import Stream
from loadgen.workload.family import shipped
from loadgen.workload.spec import Catalogue

_FAMILY = "r1-production"
#: Requests a second in each hour of ServeGen's day (deepseek-r1, all clients; alibaba/ServeGen, Apache-2.0).
HOURLY = (
    19.31, 22.25, 32.58, 28.64, 17.04, 14.54, 12.0, 9.24, 9.54, 10.63, 12.97, 13.29,
    7.16, 8.72, 10.96, 11.27, 14.06, 8.86, 12.0, 9.4, 19.86, 25.97, 35.13, 18.91,
)  # fmt: skip
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
    parser.add_argument("--steady", action="store_true", help="the same rate all day")
    given = parser.parse_args()
    source = shipped()[_FAMILY].arrivals
    rate, shape = source["rate"], 1 / source["gap_cv"] ** 2
    curve = RateCurve((rate,) if given.steady else HOURLY, 3600.0)
    count = requests_in(curve, given.hours)
    stream = Stream(Catalogue().mix([_FAMILY]), Arrivals(Kind.GAMMA, rate, shape), count, curve=curve)
    layout = parse_layout(f"--profile h200-sxm/llama-3.1-8b --colocated {given.gpus}", 600.0)
    tally, begun = Tally(max(1, count // _LOOKS)), time.process_time()
    outcome = simulate_stream(layout, stream, tally.take)
    spent = time.process_time() - begun
    print(f"{count:,} requests over {outcome.duration_s / 3600:.1f} h on {given.gpus} GPUs: {spent:.1f} s of CPU time")
    print(f"{count / spent:,.0f} requests/s, {tally.tokens / spent:,.0f} tokens/s; {tally.completed:,} completed")
    print("memory, MB: " + ", ".join(f"{mb:.0f} after {ended:,}" for ended, mb in tally.memory_mb.items()))


def requests_in(curve: RateCurve, hours: float) -> int:
    """So many as come on the mean."""
    whole = int(hours)
    rates = [curve.rates[hour % len(curve.rates)] for hour in range(whole + 1)]
    return max(1, round(3600 * (sum(rates[:whole]) + rates[whole] * (hours - whole))))


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_KB / 1024


if __name__ == "__main__":
    main()
