"""The simulated engine against the real one: the same requests on a real pair and on its simulation, side by side.

Measures the real engine into a table (`tandem profile`), starts a real pair and a simulated one of that table (one
prefill and one decode worker each, behind a gateway of its own), and sends both the same seeded Poisson workload in
alternating slices, so that a spell of noise on the machine meets both. Three SLOs are multiples of the real pair's
unloaded latencies. Ends with status 1 when the bar is missed: joint attainment within 5 points at every SLO, medians
of TTFT, TPOT and E2E within 10 %.

Needs the real engine and a machine with nothing else to do. The engines, the gateways and the load share its cores.
"""

import argparse
import asyncio
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import uvloop

from benchmarks.comparison import ATTAINMENT_BAR, MEDIAN_BAR, METRICS, Comparison, Row, compare, latencies, slos
from benchmarks.ending import sigterm_as_ctrl_c
from loadgen.arms.local import LocalArm
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.experiment import Experiment
from loadgen.measure.distribution import Distribution
from loadgen.result import Result
from loadgen.schedule import Schedule
from loadgen.workload.spec import Catalogue

#: Short enough for a CPU: prompts of some 80 tokens, answers of some 20, both with their tails.
WORKLOAD = "azure-conv scale-input=0.08 scale-output=0.15 max-input=384 max-output=64 on-long=clip"
OPTIONS = "--model SmolLM2-135M-Instruct --kv-cache-gib 1"
#: Cores that others may use on average before a run says that its machine was not quiet.
QUIET_CORES = 0.15
GRID = "--batches 1,2,4,8 --contexts 64,320 --lengths 8,16,32,64,128,192,256 --repeats 3"


def sliced(schedule: Schedule, parts: int) -> list[Schedule]:
    """The same requests with the same gaps, in `parts` runs that each begin at 0."""
    requests, size = schedule.requests, -(-len(schedule.requests) // parts)
    slices = []
    for start in range(0, len(requests), size):
        part = requests[start : start + size]
        begin_s = part[0].at_s
        moved = tuple(replace(planned, at_s=planned.at_s - begin_s) for planned in part)
        slices.append(replace(schedule, requests=moved, window_s=part[-1].at_s - begin_s))
    return slices


def alone(schedule: Schedule, count: int) -> Schedule:
    """Some of the same requests, one at a time."""
    step = max(1, len(schedule.requests) // count)
    requests = tuple(replace(planned, at_s=0.0) for planned in schedule.requests[::step][:count])
    return Schedule(requests, 0.0, Arrivals(Kind.CLOSED, concurrency=1), schedule.seed)


@dataclass(slots=True)
class Use:
    """Cores in use on average: by this benchmark with all that it has started, and by everybody else."""

    seconds: float = 0.0
    own_s: float = 0.0
    all_s: float = 0.0

    @property
    def own(self) -> float:
        return self.own_s / self.seconds if self.seconds else 0.0

    @property
    def others(self) -> float:
        return max(0.0, self.all_s - self.own_s) / self.seconds if self.seconds else 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = self._now()
        yield
        after = self._now()
        self.seconds += after[0] - before[0]
        self.own_s += after[1] - before[1]
        self.all_s += after[2] - before[2]

    @staticmethod
    def _now() -> tuple[float, float, float]:
        me = psutil.Process()
        own = sum(sum(process.cpu_times()[:2]) for process in (me, *me.children(recursive=True)))
        times = psutil.cpu_times()
        return time.monotonic(), own, sum(times) - times.idle - times.iowait


@dataclass(frozen=True, slots=True)
class Run:
    comparison: Comparison
    unloaded: tuple[Row, ...]
    use: dict[str, Use]
    facts: dict[str, Any]


async def run(args: argparse.Namespace, table: Path) -> Run:
    workload = Catalogue().mix([args.workload])
    layout = f"--prefill 1 --decode 1 {args.options}"
    real = LocalArm("real", 2, f"{layout} {args.engine}")
    simulated = LocalArm("simulated", 2, f"{layout} --engine simulated --profile file:{table}")
    arms = (real, simulated)
    async with AsyncExitStack() as stack:
        for arm in arms:
            say(f"starting the {arm.name} pair")
            await stack.enter_async_context(arm)
        paced = partial(Experiment, workload, seed=args.seed, count=args.requests)
        any_rate = paced(arrivals=Arrivals(Kind.POISSON, rate=1.0))
        few, salt = alone(any_rate.schedule(), args.unloaded), any_rate.words_salt(None, -1)
        base = {arm.name: (await arm.observe(few, salt)).results for arm in arms}
        rate = args.rate or round(args.concurrency / fmean(result.e2e_s for result in base["real"]), 2)
        experiment = paced(arrivals=Arrivals(Kind.POISSON, rate=rate))
        schedule = experiment.schedule()
        gathered: dict[str, list[Result]] = {arm.name: [] for arm in arms}
        use = {arm.name: Use() for arm in arms}
        for number, part in enumerate(sliced(schedule, args.slices)):
            salt = experiment.words_salt(None, number)
            for arm in arms if number % 2 == 0 else reversed(arms):
                say(f"slice {number + 1}: {len(part.requests)} requests on the {arm.name} pair, {part.window_s:.0f} s")
                with use[arm.name].counted():
                    gathered[arm.name] += (await arm.observe(part, salt)).results
    facts = {
        "requests": args.requests,
        "rate": rate,
        "workload": args.workload,
        "seed": args.seed,
        "digest": schedule.digest,
        "options": args.options,
        "cores": len(os.sched_getaffinity(0)),
    }
    unloaded = tuple(Row(metric, *(latencies(base[arm.name], metric) for arm in arms)) for metric in METRICS)
    return Run(compare(gathered["real"], gathered["simulated"], slos(base["real"])), unloaded, use, facts)


async def measure(options: str, engine: str, table: Path, *, pair: bool = True) -> None:
    """`tandem profile` in a process of its own, with the settings of the layout to come; `pair`: of engines with a neighbour."""
    say("measuring the engine: tandem profile")
    words = shlex.split(f"{GRID} {'--pair' if pair else ''} {options} {engine}")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tandem", "profile", "--out", str(table), *words, stdout=sys.stderr
    )
    try:
        if await process.wait():
            raise SystemExit("tandem profile failed")
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _line(row: Row) -> str:
    def three(side: Distribution) -> str:
        return "".join(f"{value or 0.0:9.1f}" for value in (side.p50, side.p90, side.p99))

    return f"{row.metric:14}{three(row.real)}  {three(row.simulated)}   {row.ratio:6.3f}"


def report(done: Run) -> str:
    one = done.comparison
    head = f"{'ms':14}{'real p50':>9}{'p90':>9}{'p99':>9}  {'sim. p50':>9}{'p90':>9}{'p99':>9}   sim./real p50"
    lines = [" ".join(f"{key}={value}" for key, value in done.facts.items()), "", "unloaded, one at a time", head]
    lines += [_line(row) for row in done.unloaded]
    lines += ["", "under load", head, *(_line(row) for row in one.rows)]
    lines += [
        "",
        "stages, as the gateway tells them, and the hand-off, as the client sees it",
        head,
        *(_line(row) for row in one.stages),
    ]
    lines += ["", f"{'SLO':10}{'limits, ms':28}{'real':>8}{'sim.':>8}{'points':>8}"]
    for slo in one.attainment:
        lines.append(f"{slo.slo:10}{slo.limits:28}{slo.real:8.1%}{slo.simulated:8.1%}{slo.points:+8.1f}")
    lines += [
        "",
        f"not completed: {one.failed}; send lag p99, ms: {tuple(round(lag, 1) for lag in one.send_lag_p99_ms)}",
    ]
    for name, used in done.use.items():
        quiet = (
            ""
            if used.others <= QUIET_CORES
            else "  NOT QUIET: latencies of the real pair have the others' work in them"
        )
        lines.append(f"cores in use, {name}: {used.own:.2f} by the benchmark, {used.others:.2f} by others{quiet}")
    bar = f"attainment within {ATTAINMENT_BAR * 100:.0f} points, medians within {MEDIAN_BAR * 100:.0f} %"
    lines.append(f"{bar}: {'met' if one.holds else 'MISSED'}")
    return "\n".join(lines)


def document(done: Run) -> dict[str, Any]:
    one = done.comparison

    def row(of: Row) -> dict[str, Any]:
        return {**asdict(of), "ratio_p50": of.ratio}

    return {
        "facts": done.facts,
        "unloaded": [row(each) for each in done.unloaded],
        "latency": [row(each) for each in one.rows],
        "stages": [row(each) for each in one.stages],
        "attainment": [{**asdict(each), "points": each.points} for each in one.attainment],
        "not_completed": one.failed,
        "send_lag_p99_ms": one.send_lag_p99_ms,
        "cores": {name: {"own": used.own, "others": used.others} for name, used in done.use.items()},
        "holds": one.holds,
    }


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fidelity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--options", default=OPTIONS, help="of tandem up, for both pairs: %(default)s")
    parser.add_argument("--engine", default="--engine vllm", help="the real engine, as options of tandem up")
    parser.add_argument("--table", type=Path, help="a table of tandem profile; measured first when not given")
    parser.add_argument("--keep", type=Path, help="where to write the table that is measured")
    parser.add_argument("--workload", default=WORKLOAD, help="as of loadgen: %(default)s")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument(
        "--concurrency",
        type=float,
        default=2.4,
        help="requests in the real pair on average, if each were as fast as alone; sets the rate, whatever the machine's speed",
    )
    parser.add_argument("--rate", type=float, help="requests per second, instead of --concurrency")
    parser.add_argument("--slices", type=int, default=4, help="the two pairs take turns this often")
    parser.add_argument("--unloaded", type=int, default=12, help="requests alone, for the SLOs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args(argv)


async def main(args: argparse.Namespace) -> Run:
    with TemporaryDirectory(prefix="fidelity-") as folder:
        table = args.table or args.keep or Path(folder) / "table.json"
        if args.table is None:
            await measure(args.options, args.engine, table)
        return await run(args, table.resolve())


if __name__ == "__main__":
    asked = arguments()
    sigterm_as_ctrl_c()
    result = uvloop.run(main(asked))
    print(json.dumps(document(result)) if asked.json else report(result))
    sys.exit(0 if result.comparison.holds else 1)
