"""A day of a reasoning service on 64 GPUs in virtual time: CPU seconds, and memory over the length of the trace.

    python -m benchmarks.simulated_day                # 1.38 million requests in 24 hours, 7 to 35 a second
    python -m benchmarks.simulated_day --hours 1
    python -m benchmarks.simulated_day --steady       # 16 a second, whatever the hour
    python -m benchmarks.simulated_day --no-gaps      # without the gaps between tokens

Lengths and burstiness are the day-wide ones of ServeGen's deepseek-r1 pool (`r1-production`), the rate is that of the hour.
Requests are drawn as they are sent and results are counted, not kept. CPU time of one process. Bound: 600 s a day.
How far it is goes to the error output. Ctrl-C ends it with the figures of what has been simulated, and status 130.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.ending import sigterm_as_ctrl_c
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
#: Memory is looked at when so many parts of all requests have ended, and how far it is is told as often or more.
_LOOKS = 8
_LINES = 48
INTERRUPTED = 130


@dataclass(slots=True)
class Tally:
    """Of `count` requests, those that have ended. `memory_mb` by their number; `tell` hears of progress."""

    count: int
    tell: Callable[[str], None]
    ended: int = 0
    completed: int = 0
    tokens: int = 0
    until_s: float = 0.0  # virtual time
    memory_mb: dict[int, float] = field(default_factory=dict)
    begun_s: float = field(default_factory=time.process_time)

    @property
    def cpu_s(self) -> float:
        return time.process_time() - self.begun_s

    def take(self, result: Result) -> None:
        self.ended += 1
        self.completed += result.ending is Ending.COMPLETED
        self.tokens += result.output_tokens
        self.until_s = result.end_s
        if self.ended % max(1, self.count // _LOOKS) == 0:
            self.memory_mb[self.ended] = _resident_mb()
        if self.ended % max(1, self.count // _LINES) == 0:
            self.tell(self.progress())

    def progress(self) -> str:
        spent = self.cpu_s
        left = spent * (self.count - self.ended) / max(1, self.ended)
        return (
            f"{self.ended / self.count:4.0%}: {self.until_s / 3600:.2f} h, {self.ended:,} of {self.count:,} requests, "
            f"{spent:.0f} s of CPU time, about {left:.0f} to go"
        )

    def figures(self) -> Sequence[str]:
        spent = self.cpu_s
        return (
            f"{self.ended:,} requests over {self.until_s / 3600:.1f} h: {spent:.1f} s of CPU time",
            f"{self.ended / spent:,.0f} requests/s, {self.tokens / spent:,.0f} tokens/s; {self.completed:,} completed",
            "memory, MB: "
            + "".join(f"{mb:.0f} after {ended:,}, " for ended, mb in self.memory_mb.items())
            + f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} at most",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--steady", action="store_true", help="the same rate all day")
    parser.add_argument("--no-gaps", action="store_true", help="answers do not know the gaps between their tokens")
    given = parser.parse_args(arguments)
    source = shipped()[_FAMILY].arrivals
    rate, shape = source["rate"], 1 / source["gap_cv"] ** 2
    curve = RateCurve((rate,) if given.steady else HOURLY, 3600.0)
    count = requests_in(curve, given.hours)
    stream = Stream(Catalogue().mix([_FAMILY]), Arrivals(Kind.GAMMA, rate, shape), count, curve=curve)
    layout = parse_layout(f"--profile h200-sxm/llama-3.1-8b --colocated {given.gpus}", 600.0)
    tally, status = Tally(count, lambda line: print(line, file=sys.stderr, flush=True)), 0
    try:
        simulate_stream(replace(layout, gaps=not given.no_gaps), stream, tally.take)
    except KeyboardInterrupt:
        status = INTERRUPTED
        print(f"interrupted: what follows is of {tally.ended:,} of {count:,} requests")
    print(f"{given.gpus} GPUs; " + "\n".join(tally.figures()))
    return status


def requests_in(curve: RateCurve, hours: float) -> int:
    """So many as come on the mean."""
    whole = int(hours)
    rates = [curve.rates[hour % len(curve.rates)] for hour in range(whole + 1)]
    return max(1, round(3600 * (sum(rates[:whole]) + rates[whole] * (hours - whole))))


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_KB / 1024


if __name__ == "__main__":
    sigterm_as_ctrl_c()
    sys.exit(main())
