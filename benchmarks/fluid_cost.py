"""What one choice of the role policy costs a gateway, in microseconds of CPU time.

    python -m benchmarks.fluid_cost [--workers 64] [--running 1000] [--leaning 16] [--decisions 2000] [--runs 3]

`place` is the choice of a prompt's way among all workers, `books` what the policy notes of one prompt from then to its end.
`static` is the choice by free KV, on the same workers and prompts. Chunks are the engines'; with
`--bounded` the policy sets them, as where engines take limits. Between two decisions an answer ends, another begins, and two
workers tell of their steps. Of each decision in several runs that are alike the least time counts.
"""

import argparse
import json
import random
from functools import partial

import numpy as np

from benchmarks.admission_cost import timed
from gateway.policy.need import Need
from gateway.policy.roles import Aims, Fluid, Knobs
from gateway.policy.routing import DecodeCandidate, Fleet, Link, Placement, PrefillCandidate, Rules, place
from proto.worker import Role, StepTotals

RULES = Rules(0, prefill_here_if_none=True)
BLOCKS, SIZE, SLOTS, WINDOW = 20_000, 16, 1_024, 131_072
STEP_S = 0.02


class Scene:
    """Fluid workers with running answers."""

    def __init__(self, workers: int, running: int, leaning: int, seed: int, *, bounded: bool) -> None:
        self._random = random.Random(seed)
        self.now_s = 0.0
        knobs = Knobs(leans=False) if bounded else Knobs(leans=False, smallest_chunk_tokens=Knobs().largest_step_tokens)
        self.fluid = Fluid(Aims(1.0, 0.05), lambda: self.now_s, knobs)
        self.names = [f"w{at}" for at in range(workers)]
        self.fluid.leaning.update(self.names[:leaning])
        self._prefills = tuple(PrefillCandidate(name, Role.BOTH, 0) for name in self.names)
        self._links = {
            name: {other: Link("nvlink", 1e11) for other in self.names if other != name} for name in self.names
        }
        self._running: list[str] = []
        self._count = 0
        while len(self._running) < running:
            need = self.newcomer()
            outlook = self.fluid.place(need, self.fleet(), RULES)
            assert isinstance(outlook, Placement)
            self.begin(outlook, need)

    def newcomer(self) -> Need:
        prompt = int(min(30_000, self._random.lognormvariate(6.5, 1.2))) + 1
        expected = min(8_000, self._random.lognormvariate(6.0, 1.0)) + 1
        return Need(prompt, 32_768, 1, likely_tokens=int(expected), expected_tokens=expected)

    def fleet(self) -> Fleet:
        """A new one each time, as after every change on a gateway."""
        free = self._random.choices(range(BLOCKS // 2, BLOCKS), k=len(self.names))
        decodes = tuple(
            DecodeCandidate(name, Role.BOTH, WINDOW, SIZE, BLOCKS, left, SLOTS, headroom_blocks=float(left))
            for name, left in zip(self.names, free, strict=True)
        )
        return Fleet(decodes, self._prefills, self._links)

    def begin(self, placement: Placement, need: Need) -> None:
        self._count += 1
        key = str(self._count)
        self.fluid.taken(key, placement, need)
        self.fluid.prefilled(key)
        self.fluid.moved(key)
        self._running.append(key)

    def end(self) -> None:
        if self._running:
            self.fluid.ended(self._running.pop(self._random.randrange(len(self._running))))

    def pass_time(self) -> None:
        self.now_s += STEP_S
        for name in self._random.sample(self.names, min(2, len(self.names))):
            answers = self.fluid.book(name).answers
            self.fluid.stepped(name, StepTotals(25, 25 * STEP_S, 25, 25 * answers, 25 * 2_000 * answers))


def measure(scene: Scene, decisions: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {"place": [], "books": [], "static": []}
    for at in range(decisions + 50):
        scene.pass_time()
        need, fleet, again = scene.newcomer(), scene.fleet(), scene.fleet()
        outlook, placing = timed(partial(scene.fluid.place, need, fleet, RULES))
        assert isinstance(outlook, Placement)
        _, noting = timed(partial(scene.begin, outlook, need))
        _, ending = timed(scene.end)
        _, static = timed(partial(place, need, again, RULES))
        if at >= 50:
            for name, spent in zip(taken, (placing, noting + ending, static), strict=True):
                taken[name].append(spent)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--running", type=int, default=1_000)
    parser.add_argument("--leaning", type=int, default=16)
    parser.add_argument("--decisions", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--bounded", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    least: dict[str, list[float]] = {}
    for _ in range(options.runs):
        scene = Scene(options.workers, options.running, options.leaning, options.seed, bounded=options.bounded)
        taken = measure(scene, options.decisions)
        least = {name: list(map(min, least.get(name, taken[name]), taken[name])) for name in taken}
    rows = {
        name: {"p50_us": float(np.quantile(spent, 0.5)), "p99_us": float(np.quantile(spent, 0.99))}
        for name, spent in least.items()
    }
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(
        f"{options.workers} workers, {options.leaning} lean, {options.running} running, {options.decisions} decisions"
    )
    for name, row in rows.items():
        print(f"{name:8} p50 {row['p50_us']:7.1f}   p99 {row['p99_us']:7.1f}   microseconds of CPU time")


if __name__ == "__main__":
    main()
