"""Long requests that arrive together, and lengths that shift fourfold in the middle of a run.

    python -m benchmarks.admission.storms                     # both, three rules, three seeds
    python -m benchmarks.admission.storms --scene burst --rule forecast --seeds 5
    python -m benchmarks.admission.storms --quick
    python -m benchmarks.admission.storms --svg timeline.svg  # KV in use over time, first seed

Burst: R1 traffic at 70 % of capacity, and three times 40 answers of 10,000 to 14,000 tokens within 10 s. Shift: R1 traffic
above capacity; from 300 s on every answer is four times as long, and fewer come, so that it stays above capacity.
Lengths of the calm traffic are known from 2,000 earlier answers.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.admission.contenders import CONTENDERS, OURS
from benchmarks.admission.contest import earlier, mean_of
from benchmarks.admission.fleet import Service, layout
from benchmarks.admission.trial import merged, run, schedule
from benchmarks.admission.watch import Seen, Watch
from benchmarks.admission.workloads import WORKLOADS
from decode_pool.expected import Admission
from loadgen.demand import Demand
from loadgen.report.svg import Axis, Line, chart, standalone
from loadgen.schedule import Schedule

#: R1 answers four times as long take ten times the KV x time each, but need minutes to fill what the short ones leave: with a
#: rate that is divided by less, there is always somebody who waits.
SHIFT, SHIFT_RATE = 4, 1 / 3
SHIFT_AT_S, BURSTS_AT_S = 300.0, (120.0, 300.0, 480.0)


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    start_s: float
    end_s: float


BURST_PHASES = tuple(Phase(f"burst at {at:.0f} s", at, at + 120.0) for at in BURSTS_AT_S)
SHIFT_PHASES = (
    Phase("before", 60.0, SHIFT_AT_S),
    Phase("0 to 1 min after", SHIFT_AT_S, SHIFT_AT_S + 60),
    Phase("1 to 2 min", SHIFT_AT_S + 60, SHIFT_AT_S + 120),
    Phase("2 to 4 min", SHIFT_AT_S + 120, SHIFT_AT_S + 240),
    Phase("4 to 7 min", SHIFT_AT_S + 240, SHIFT_AT_S + 420),
)


def bursts(seed: int, end_s: float = 620.0) -> Schedule:
    one = WORKLOADS["r1-production"]
    calm = schedule(one.words, 0.7 * one.capacity_per_s, end_s, seed)
    rng = np.random.default_rng((seed, 5))
    extra = [
        (at_s + float(rng.random()) * 10.0, Demand(200, int(rng.integers(10_000, 14_000))))
        for at_s in BURSTS_AT_S
        for _ in range(40)
    ]
    return _merged(calm, extra)


def shift(seed: int, end_s: float = 730.0) -> Schedule:
    one = WORKLOADS["r1-production"]
    rate = 1.1 * one.capacity_per_s
    before = schedule(one.words, rate, SHIFT_AT_S, seed)
    after = schedule(one.words, rate * SHIFT_RATE, end_s - SHIFT_AT_S, seed + 1000)
    longer = [
        (SHIFT_AT_S + planned.at_s, replace(planned.demand, output_tokens=_longer(planned.demand)))
        for planned in after.requests
        if planned.at_s > 0.0
    ]
    return _merged(before, longer)


def _longer(demand: Demand) -> int:
    return min(SHIFT * demand.output_tokens, 40_000 - demand.prompt_tokens)


def _merged(base: Schedule, extra: Sequence[tuple[float, Demand]]) -> Schedule:
    both = merged(base, [*((one.at_s, one.demand) for one in base.requests), *extra])
    return replace(both, window_s=both.requests[-1].at_s)


def row(watch: Watch, phase: Phase, pool_share: float) -> tuple[float, ...]:
    """KV used, share over capacity less pool, share full, moves and preemptions a minute, recomputed of generated."""
    seen, used = watch.between(phase.start_s, phase.end_s), watch.used(phase.start_s, phase.end_s)
    first, last = seen[0], seen[-1]
    generated = max(1, last.generated_tokens - first.generated_tokens)
    minutes = (phase.end_s - phase.start_s) / 60.0
    return (
        float(used.mean()),
        float((used > 1.0 - pool_share).mean()),
        float((used > 0.9995).mean()),
        (last.moved - first.moved) / minutes,
        (last.preemptions - first.preemptions) / minutes,
        (last.recomputed_tokens - first.recomputed_tokens) / generated,
    )


def timeline(watches: dict[str, Watch], title: str) -> str:
    def used(watch: Watch, seen: Seen) -> float:
        return max(seen.used) / watch.blocks

    lines = [
        Line(name, [(seen.at_s, used(watch, seen)) for seen in watch.seen[::4]]) for name, watch in watches.items()
    ]
    drawn = chart(title, Axis("s"), Axis("KV in use, fullest worker", low=0.0, high=1.0, percent=True), lines)
    return standalone(title, drawn, list(watches))


SCENES = {"burst": (bursts, BURST_PHASES), "shift": (shift, SHIFT_PHASES)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scene", action="append", choices=SCENES)
    parser.add_argument("--rule", action="append", choices=CONTENDERS)
    parser.add_argument("--epsilon", type=float, default=Admission().epsilon, help="error budget of ours")
    parser.add_argument("--quick", action="store_true", help="one seed, ours and Past-Future")
    parser.add_argument("--svg", type=Path, help="prefix of the timelines' names")
    given = parser.parse_args()
    rules = given.rule or ([OURS, "past_future"] if given.quick else [OURS, "past_future", "oracle"])
    seeds = 1 if given.quick else given.seeds
    for title in given.scene or SCENES:
        plan, phases = SCENES[title]
        print(
            f"\n| {title} | rule | KV used | over | full | moves /min | preempted /min | recomputed |"
            f" worst seed |\n|{' --- |' * 9}"
        )
        watches: dict[str, Watch] = {}
        for rule in rules:
            rows = []
            for seed in range(1, seeds + 1):
                ours = replace(Admission(), epsilon=given.epsilon)
                taught = earlier(WORKLOADS["r1-production"], seed)
                watch, _ = run(CONTENDERS[rule], layout(Service()), plan(seed), ours, taught=taught)
                watches.setdefault(rule, watch)
                rows.append([row(watch, phase, Admission().pool_share) for phase in phases])
            for phase, found in zip(phases, np.swapaxes(rows, 0, 1), strict=True):
                used, over, full, moves, preempted, recomputed = map(mean_of, found.T)
                worst = found[:, -1].max()
                print(
                    f"| {phase.name} | {CONTENDERS[rule].title} | {used:.1%} | {over:.2%} | {full:.2%} |"
                    f" {moves:.1f} | {preempted:.1f} | {recomputed:.2%} | {worst:.2%} |",
                    flush=True,
                )
        if given.svg:
            given.svg.with_name(f"{given.svg.stem}-{title}.svg").write_text(timeline(watches, title))


if __name__ == "__main__":
    main()
