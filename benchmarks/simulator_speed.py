"""How fast the fleet simulator is: simulated requests and tokens per second of CPU, over fleet and batch size.

    python -m benchmarks.simulator_speed              # small cases, a minute
    python -m benchmarks.simulator_speed --whole      # 100,000 natural-reasoning requests on 8 GPUs, closed and open
    python -m benchmarks.simulator_speed --policy --requests 2000   # what the gateway's whole policy costs, by turns
    python -m benchmarks.simulator_speed --gaps       # what it costs to know the gaps between tokens, by turns

CPU time of one process; the machine's other work does not count. Bounds: closed batch 60 s, open loop 180 s.
"""

import argparse
import resource
import time
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from loadgen.arrivals.process import Arrivals, Kind
from loadgen.schedule import Plan, Schedule, build
from loadgen.simulate import Layout, Outcome, parse_layout, simulate
from loadgen.workload.spec import Catalogue

#: Nobody is turned away: the engines, not the deadlines, are what is timed.
_PATIENT = "--set gateway.deadlines.queue_s=1000000 --set gateway.admission.max_queued=1000000"
_PROFILE = "--profile h200-sxm/llama-3.1-8b"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", action="store_true", help="the full-size cases alone")
    parser.add_argument("--policy", action="store_true", help="without and with --controlled, in turn")
    parser.add_argument("--requests", type=int, default=100_000, help="of the full-size cases, or of --policy")
    parser.add_argument("--only", default="", metavar="WORDS", help="cases with these words in their name")
    parser.add_argument("--gaps", action="store_true", help="each case without and with gaps between tokens, in turn")
    given = parser.parse_args()
    table = Table(box=None)
    for name in ("case", "requests", "GPUs", "CPU s", "requests/s", "tokens/s", "virtual s", "preempted", "max RSS MB"):
        table.add_column(name, justify="left" if name == "case" else "right")
    rows = _whole(given.requests) if given.whole else _policy(given.requests) if given.policy else _small()
    chosen = [row for row in rows if given.only in row[0]]
    for name, layout, schedule in _with_and_without_gaps(chosen) if given.gaps else chosen:
        table.add_row(*_row(name, layout, schedule))
    Console(width=150).print(table)


def _with_and_without_gaps(
    rows: Sequence[tuple[str, Layout, Schedule]],
) -> Sequence[tuple[str, Layout, Schedule]]:
    return [
        (f"{name}, {'gaps' if gaps else 'no gaps'}", replace(layout, gaps=gaps), schedule)
        for name, layout, schedule in rows
        for gaps in (False, True) * 2
    ]


def _whole(requests: int) -> Sequence[tuple[str, Layout, Schedule]]:
    dp = parse_layout(f"{_PROFILE} --colocated 8 {_PATIENT}", float("inf"))
    fluid = parse_layout(f"{_PROFILE} --colocated 8 --fluid 2000:50 {_PATIENT}", float("inf"))
    return [
        ("closed batch of 2,000, KV reserved", dp, closed(requests, 2_000)),
        ("closed batch of 2,000, no admission control", _without(dp), closed(requests, 2_000)),
        ("open loop, 6 req/s, KV reserved", dp, opened(requests, 6.0)),
        ("open loop, 6 req/s, fluid roles", fluid, opened(requests, 6.0)),
    ]


def _policy(requests: int) -> Sequence[tuple[str, Layout, Schedule]]:
    cases = []
    for workload, rate in (("azure-conv", 160.0), ("natural-reasoning", 6.0)):
        schedule = opened(requests, rate, workload)
        for words in ("", "--controlled") * 2:
            layout = parse_layout(f"{_PROFILE} --colocated 8 {words}", float("inf"))
            cases.append((f"open, DP=8, {workload} {words}", layout, schedule))
    return cases


def _small() -> Sequence[tuple[str, Layout, Schedule]]:
    cases = []
    for gpus in (1, 8, 64):
        layout = parse_layout(f"{_PROFILE} --colocated {gpus} {_PATIENT}", float("inf"))
        cases.append((f"closed, DP={gpus}, batch of 100 per GPU", layout, closed(500 + 50 * gpus, 100 * gpus)))
    for batch in (80, 400, 2_000):
        layout = parse_layout(f"{_PROFILE} --colocated 8 {_PATIENT}", float("inf"))
        cases.append((f"closed, DP=8, batch of {batch}", layout, closed(4_000, batch)))
    split = parse_layout(f"{_PROFILE} --prefill 2 --decode 6 {_PATIENT}", float("inf"))
    cases.append(("open, 2 prefill + 6 decode, azure-conv", split, opened(4_000, 60.0, "azure-conv")))
    return cases


def closed(requests: int, concurrency: int) -> Schedule:
    arrivals = Arrivals(Kind.CLOSED, concurrency=concurrency)
    return build(Plan(Catalogue(None).mix(["natural-reasoning"]), arrivals, count=requests))


def opened(requests: int, rate: float, workload: str = "natural-reasoning") -> Schedule:
    return build(Plan(Catalogue(None).mix([workload]), Arrivals(Kind.POISSON, rate=rate), count=requests))


def _without(layout: Layout) -> Layout:
    return replace(layout, admission=False)


def _row(name: str, layout: Layout, schedule: Schedule) -> Sequence[str]:
    begun = time.process_time()
    outcome: Outcome = simulate(layout, schedule)
    spent = time.process_time() - begun
    requests = len(schedule.requests)
    tokens = sum(result.output_tokens for result in outcome.results)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        name,
        f"{requests:,}",
        f"{layout.gpus:g}",
        f"{spent:.1f}",
        f"{requests / spent:,.0f}",
        f"{tokens / spent:,.0f}",
        f"{outcome.duration_s:,.0f}",
        f"{outcome.preemptions:,}",
        f"{rss:,.0f}",
    )


if __name__ == "__main__":
    main()
