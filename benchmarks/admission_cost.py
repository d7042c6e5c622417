"""What one admission costs on the path that serves, in microseconds of CPU time.

    python -m benchmarks.admission_cost [--workers 64] [--running 1000] [--queued 10000] [--decisions 2000] [--runs 3]

`plan` is what the gateway makes of a newcomer, `turn` the head of the fair line and the choice among all workers, `reserve`
the decision of the chosen worker's ledger by its error budget. `admission` is all three. `place()` alone is timed in turn
with them, on the same workers; that ratio is what to compare between machines. `tend` is what one worker does after each
decode step so that its forecast is fresh, and no part of an admission.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import NormalDist
from typing import TypeVar

import numpy as np

from benchmarks.plain_worker import plain_info, plain_state
from decode_pool.expected import Admission
from decode_pool.ledger import Hold, Ledger, Load, Shape
from gateway.cluster.leases import LeaseKind
from gateway.cluster.view import View
from gateway.cluster.worker import Worker
from gateway.collector import calm_collector
from gateway.config import HealthConfig
from gateway.policy.admission import Entry
from gateway.policy.bid import Ask, Bid
from gateway.policy.control.controller import Controller, Setting
from gateway.policy.control.plan import Asked
from gateway.policy.dispatch import Dispatch
from gateway.policy.estimate import Features, FinishedBy
from gateway.policy.prefix import BlockHashes, PrefixKey
from gateway.policy.routing import Fleet, Links, Path, Placement, Rules, place
from gateway.policy_config import PolicyConfig
from proto.reservation import Refusal, Reservation

T = TypeVar("T")

BLOCKS, SIZE, SLOTS, WINDOW = 20_000, 16, 1_024, 131_072
RULES = Rules(0, prefill_here_if_none=True)
STEP_S = 0.02
LOAD = Load(step_time_s=STEP_S)
#: Median answers of four declared efforts; each is learnt from 200 before anything is timed.
EFFORTS = {"none": 200, "low": 500, "medium": 1_200, "high": 4_000}


class Scene:
    """A gateway with its line, and workers with their running answers."""

    def __init__(self, workers: int, running: int, queued: int, seed: int) -> None:
        self._random = random.Random(seed)
        self.now_s = 0.0
        self.controller = Controller(PolicyConfig(), lambda: self.now_s, Setting(queue_s=math.inf))
        for effort, median in EFFORTS.items():
            for number in range(200):
                length = round(median * math.exp(NormalDist().inv_cdf((number + 0.5) / 200)))
                self.controller.lengths.observe(Features("m", 500, effort=effort), length, FinishedBy.STOP)
        shape = Shape(BLOCKS, SIZE, SLOTS, WINDOW)
        self.ledgers = {f"w{at}": Ledger(shape, lambda: self.now_s, f"w{at}", Admission()) for at in range(workers)}
        self.workers = {name: self._worker(name) for name in self.ledgers}
        self._view = View()
        self._links: dict[str, Links] = {}  # the same all the time, as a gateway's are
        for name in self.workers:
            self._hear(name)
        self.dispatch: Dispatch[str] = Dispatch(
            self.controller.line(queued + 1),
            RULES,
            self.view,
            lambda _: True,
            lambda: self.now_s,
            objection=self.controller.objection,
            decided=self.controller.decided,
        )
        self.running: list[tuple[Bid, Hold]] = []
        self.tend_us = 0.0
        self._open = True
        while len(self.running) < running:
            bid, worker = self.bid(self.newcomer()), f"w{len(self.running) % workers}"
            self.start(bid, worker, self.reserve(bid, worker))
        self._open = False
        while len(self.dispatch) < queued:
            self.enter(self.bid(self.newcomer()))
        self._open = True

    def view(self, prefix: BlockHashes) -> Fleet:
        """As a live gateway has it of the last word of its workers."""
        fleet = self._view.fleet(self.workers.values(), self._links, prefix)
        return fleet if self._open else replace(fleet, decodes=tuple([replace(d, closed=True) for d in fleet.decodes]))

    def _tend(self) -> None:
        for ledger in self.ledgers.values():
            ledger.tend()

    def _worker(self, name: str) -> Worker:
        info = plain_info(name, blocks=BLOCKS, block_size=SIZE, slots=SLOTS, window=WINDOW)
        return Worker(info, "", HealthConfig(), lambda: self.now_s, lambda *_: None, self._news)

    def _news(self) -> None:
        """As a live gateway takes it."""
        self._view.tend()

    def _hear(self, name: str) -> None:
        ledger = self.ledgers[name]
        promised, pool = ledger.promised_blocks(LOAD), ledger.expected.budget.pool_blocks
        self.workers[name].heard(
            plain_state(blocks=BLOCKS, reserved=ledger.reserved_blocks, promised=promised, pool=pool)
        )

    def newcomer(self) -> Asked:
        prompt = int(min(30_000, self._random.lognormvariate(6.5, 1.2))) + 1
        features = Features("m", prompt, effort=self._random.choice(list(EFFORTS)))
        return Asked(features, 1, 32_768, True, WINDOW, BLOCKS * SIZE)

    def bid(self, asked: Asked) -> Bid:
        plan = self.controller.plan(asked)
        arrival = self.dispatch.arrive()
        bid = Bid(f"r{arrival}", plan.need, PrefixKey((), ""), arrival, plan=plan)
        bid.claim = self.controller.claim(plan)
        self.controller.open(bid)
        return bid

    def enter(self, bid: Bid) -> None:
        assert isinstance(self.dispatch.enter(bid, bid.request_id), Entry)

    def turn(self) -> tuple[Bid, Placement]:
        ask: Ask[str]
        ask, placement = next(self.dispatch.turns())
        assert isinstance(placement, Placement)
        return ask.bid, placement

    def reserve(self, bid: Bid, worker: str) -> Reservation | Refusal:
        placement = Placement(worker, Path.COLOCATED, "")
        request = self.controller.reserve(
            bid, "g", f"{bid.request_id}-r1", 60.0, placement, lambda: self.view(bid.prefix)
        )
        return self.ledgers[worker].reserve(request, LOAD)

    def start(self, bid: Bid, worker: str, reply: Reservation | Refusal) -> None:
        """The gateway notes what was granted, and the answer runs."""
        leases = self.workers[worker].leases
        lease = leases.take(LeaseKind.RESERVATION, bid.request_id, ttl_s=60.0, blocks=bid.need.likely_blocks(SIZE))
        if isinstance(reply, Reservation):
            leases.granted(lease, reply.blocks)
            hold = self.ledgers[worker].start(reply.reservation_id, "g", bid.need.prompt_tokens)
            assert hold is not None
            self.running.append((bid, hold))

    def pass_time(self) -> None:
        """An answer comes to its end and is learnt from, all others gain a token, and two workers say how they are."""
        self.now_s += STEP_S
        if self.running:
            bid, hold = self.running.pop(self._random.randrange(len(self.running)))
            hold.end()
            self.controller.answered(bid, hold.tokens - bid.need.prompt_tokens + 1, FinishedBy.STOP)
        for _, hold in self.running:
            hold.advance(1)
        _, spent = timed(self._tend)
        self.tend_us = spent / len(self.ledgers)
        for name in self._random.sample(list(self.ledgers), min(2, len(self.ledgers))):
            self._hear(name)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Microseconds of CPU time, so that neighbours on the machine count little."""
    start = time.thread_time_ns()
    done = work()
    return done, (time.thread_time_ns() - start) / 1e3


def measure(scene: Scene, decisions: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {"admission": [], "plan": [], "turn": [], "reserve": [], "place": [], "tend": []}
    for at in range(decisions + 50):
        scene.pass_time()
        newcomer, plan = timed(partial(scene.bid, scene.newcomer()))
        (bid, placement), turn = timed(scene.turn)
        reply, reserve = timed(partial(scene.reserve, bid, placement.worker_id))
        scene.start(bid, placement.worker_id, reply)
        _, alone = timed(partial(place, bid.need, scene.view(bid.prefix), RULES))
        scene.enter(newcomer)
        if at >= 50:
            for name, spent in zip(
                taken, (plan + turn + reserve, plan, turn, reserve, alone, scene.tend_us), strict=True
            ):
                taken[name].append(spent)
    return taken


def least(one: dict[str, list[float]], other: dict[str, list[float]]) -> dict[str, list[float]]:
    """Of each decision in two runs that are alike the time that it takes by itself. Neighbours only ever add to it."""
    if not one:
        return other
    parts = {name: list(map(min, one[name], other[name])) for name in other}
    parts["admission"] = [sum(each) for each in zip(parts["plan"], parts["turn"], parts["reserve"], strict=True)]
    return parts


def summary(taken: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    rows = {
        name: {"p50_us": float(np.quantile(values, 0.5)), "p99_us": float(np.quantile(values, 0.99))}
        for name, values in taken.items()
    }
    rows["admission / place"] = {key: rows["admission"][key] / rows["place"][key] for key in ("p50_us", "p99_us")}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--running", type=int, default=1_000)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--decisions", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="alike; of each decision the least time counts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    taken: dict[str, list[float]] = {}
    for _ in range(options.runs):
        scene = Scene(options.workers, options.running, options.queued, options.seed)
        calm_collector()
        taken = least(taken, measure(scene, options.decisions))
    rows = summary(taken)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(
        f"{options.workers} workers, {options.running} running, {options.queued} queued, {options.decisions} decisions, "
        f"the least of {options.runs} runs"
    )
    print(f"{'':20} {'p50':>10} {'p99':>10}   microseconds of CPU time")
    for name, row in rows.items():
        unit = "x" if "/" in name else ""
        print(f"{name:20} {row['p50_us']:>9.1f}{unit or ' '} {row['p99_us']:>9.1f}{unit}")


if __name__ == "__main__":
    main()
