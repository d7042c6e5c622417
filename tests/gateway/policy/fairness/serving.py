"""A server that gives turns one after another, for tests of the queue."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings

from gateway.policy.admission import Entry
from gateway.policy.fairness.claim import Band, Claim
from gateway.policy.fairness.queue import FairQueue
from gateway.policy.fairness.rules import FairRules

#: A machine with other work to do is no reason to fail.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
#: One token of output costs one unit, so that costs can be read off the claims.
PLAIN = FairRules(prompt_weight=0.0, output_weight=1.0)


def claim(tenant: str = "a", cost: float = 1.0, klass: str = "", band: Band = Band.NORMAL) -> Claim:
    return Claim(tenant=tenant, klass=klass, band=band, expected_output_tokens=cost)


def queue_of(rules: FairRules = PLAIN, limit: int = 10_000) -> FairQueue[Claim]:
    """Of claims that are their own items."""
    return FairQueue(limit, lambda item: item, rules)


def push(queue: FairQueue[Claim], *claims: Claim) -> list[Entry[Claim]]:
    entries = [Entry(queue.arrive(), each) for each in claims]
    for entry in entries:
        queue.push(entry)
    return entries


def take(queue: FairQueue[Claim]) -> Claim:
    """The head has its turn and ends as estimated."""
    entry = queue.head
    assert entry is not None
    assert queue.take(entry)
    queue.settle(entry, entry.item.prompt_tokens, int(entry.item.expected_output_tokens))
    return entry.item


@dataclass(slots=True)
class Served:
    item: Claim
    waited_s: float


@dataclass(slots=True)
class Server:
    """Serves one unit a second, one prompt at a time, never idle while somebody waits."""

    queue: FairQueue[Claim]
    now_s: float = 0.0
    served: list[Served] = field(default_factory=list)

    def run(self, arrivals: Iterable[tuple[float, Claim]], until_s: float = float("inf")) -> list[Served]:
        """`arrivals` by time. Ends when all are served, or at `until_s`."""
        waiting = sorted(arrivals, key=lambda arrival: arrival[0])
        came: dict[int, float] = {}
        index = 0
        while self.now_s < until_s and (index < len(waiting) or len(self.queue)):
            if not len(self.queue):
                self.now_s = max(self.now_s, waiting[index][0])
            while index < len(waiting) and waiting[index][0] <= self.now_s:
                (entry,) = push(self.queue, waiting[index][1])
                came[entry.arrival] = waiting[index][0]
                index += 1
            self._serve(came)
        return self.served

    def _serve(self, came: dict[int, float]) -> None:
        head = self.queue.head
        assert head is not None
        item = take(self.queue)
        self.served.append(Served(item, self.now_s - came[head.arrival]))
        self.now_s += item.expected_output_tokens
