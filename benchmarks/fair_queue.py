"""What the fair queue costs per call, as a ratio to FifoQueue in the same run, with many waiting.

    python -m benchmarks.fair_queue [--queued N] [--tenants N] [--rounds N] [--json]

Every call is made at the full length of the queue: whoever leaves is replaced. CPU time; ratios are what to read.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from gateway.policy.admission import Entry, FifoQueue
from gateway.policy.fairness.claim import Band, Claim
from gateway.policy.fairness.queue import FairQueue
from gateway.policy.fairness.rules import POLICIES

Queue = FifoQueue[Claim] | FairQueue[Claim]
CLASSES = ("chat", "reasoning", "batch")
CALLS = ("push", "head", "last", "turn", "leave")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one call, in µs."""

    call: str
    fifo_p50: float
    fair_p50: float
    fair_p99: float

    @property
    def ratio(self) -> float:
        return self.fair_p50 / self.fifo_p50


class Crowd:
    """A queue held at one length, and how long each call took."""

    def __init__(self, queue: Queue, queued: int, tenants: int, seed: int) -> None:
        self.queue, self.draw, self.tenants = queue, random.Random(seed), tenants
        self.waiting: dict[int, Entry[Claim]] = {}
        self.running: list[Entry[Claim]] = []
        self.times_us: dict[str, list[float]] = {call: [] for call in CALLS}
        for _ in range(queued):
            self.push()

    def newcomer(self) -> Claim:
        draw = self.draw
        return Claim(
            tenant=f"tenant-{int(self.tenants * draw.random() ** 2)}",  # few send most
            klass=draw.choice(CLASSES),
            band=draw.choice((Band.HIGH, *[Band.NORMAL] * 8, Band.LOW)),
            prompt_tokens=int(draw.lognormvariate(6.5, 1.2)),
            expected_output_tokens=draw.lognormvariate(6.5, 1.2),
            deadline_s=draw.uniform(0, 1e6),
        )

    def timed(self, call: str, work: Callable[[], object]) -> None:
        started = time.thread_time()
        work()
        self.times_us[call].append(1e6 * (time.thread_time() - started))

    def push(self) -> None:
        entry = Entry(self.queue.arrive(), self.newcomer())
        self.waiting[entry.arrival] = entry
        self.timed("push", lambda: self.queue.push(entry))

    def round(self) -> None:
        """Somebody has a turn and comes to an end, somebody leaves, two come."""
        self.timed("last", lambda: self.queue.last)
        self.timed("head", lambda: self.queue.head)
        self.turn()
        self.push()
        leaving = self.waiting.pop(self.draw.choice(list(self.waiting)))
        self.timed("leave", lambda: self.queue.remove(leaving))
        self.push()

    def turn(self) -> None:
        queue, head = self.queue, self.queue.head
        assert head is not None
        del self.waiting[head.arrival]
        if isinstance(queue, FifoQueue):
            self.timed("turn", lambda: queue.remove(head))
            return
        self.timed("turn", lambda: queue.take(head))
        self.running.append(head)
        if len(self.running) > 1000:
            ended = self.running.pop(0)
            queue.settle(ended, ended.item.prompt_tokens, ended.item.prompt_tokens)

    def quantile(self, call: str, level: float) -> float:
        return statistics.quantiles(self.times_us[call], n=100, method="inclusive")[round(level * 100) - 1]


def measure(queued: int, tenants: int, rounds: int, seed: int = 0) -> list[Cost]:
    rules = replace(POLICIES["fair"], classes={"chat": 4.0, "reasoning": 2.0})
    fifo = Crowd(FifoQueue(queued), queued, tenants, seed)
    fair = Crowd(FairQueue(queued, lambda claim: claim, rules), queued, tenants, seed)
    for crowd in (fifo, fair):
        for times in crowd.times_us.values():
            times.clear()  # the queue was still filling
    for _ in range(rounds):
        fifo.round()
        fair.round()
    return [Cost(call, fifo.quantile(call, 0.5), fair.quantile(call, 0.5), fair.quantile(call, 0.99)) for call in CALLS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--json", action="store_true", help="for machines")
    options = parser.parse_args()
    costs = measure(options.queued, options.tenants, options.rounds)
    if options.json:
        print(json.dumps([{**asdict(cost), "ratio": cost.ratio} for cost in costs]))
        return
    print(f"{options.queued} queued, {options.tenants} tenants; µs a call")
    print(f"{'call':<10}{'fifo p50':>10}{'fair p50':>10}{'fair p99':>10}{'ratio':>8}")
    for cost in costs:
        print(f"{cost.call:<10}{cost.fifo_p50:>10.1f}{cost.fair_p50:>10.1f}{cost.fair_p99:>10.1f}{cost.ratio:>8.2f}")


if __name__ == "__main__":
    main()
