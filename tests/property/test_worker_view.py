"""The fleet that routing sees, kept from turn to turn, is the one that would be made anew, whatever happens to workers."""

from collections.abc import Callable
from random import Random

import pytest

from gateway.cluster.leases import Lease, LeaseKind
from gateway.cluster.view import View
from gateway.cluster.worker import Worker
from gateway.config import HealthConfig
from gateway.policy.prefix import PrefixKey
from gateway.policy.routing import Fleet, Link
from gateway.policy.standing import REOPEN_S
from proto.reservation import Refusal, RefusalReason
from proto.worker import Role
from tests.gateway.cluster.facts import Clock, state
from tests.workers import worker_info

_PROMPTS = [PrefixKey(range(start, start + 64), "") for start in (0, 32, 500)]
_NAMES = ("a", "b", "c")
_LEASES = 12


class Walk:
    """Events at random; what is not possible now is nothing."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = Clock()
        self.links: dict[str, dict[str, Link]] = {}
        self.workers = {name: self.worker(name) for name in _NAMES}
        self.ready = list(_NAMES)
        self.leases: list[tuple[Worker, Lease]] = []
        self.prompt = _PROMPTS[0]
        self.events: list[Callable[[], None]] = [
            self.heard, self.taken, self.taken, self.granted, self.computed, self.over, self.over, self.prefilled,
            self.cached, self.waited, self.lost_or_back, self.begun_anew, self.linked, self.asked,
        ]  # fmt: skip

    def worker(self, name: str) -> Worker:
        return Worker(worker_info(name), name, HealthConfig(), self.clock, lambda *_: None, lambda: None)

    def one(self) -> Worker:
        return self.workers[self.random.choice(_NAMES)]

    def heard(self) -> None:
        used, promised = self.random.randrange(100), float(self.random.randrange(100))
        role, pool = self.random.choice([Role.BOTH, *Role]), self.random.randrange(9)
        told = state(role=role, blocks_used=used, blocks_reserved=used, blocks_promised=promised, pool_blocks=pool)
        self.one().heard(told)

    def taken(self) -> None:
        worker, size = self.one(), self.random.randrange(40)
        kind = self.random.choice([LeaseKind.RESERVATION, *LeaseKind])
        if len(self.leases) < _LEASES:
            self.leases.append((worker, worker.leases.take(kind, "r", ttl_s=9.0, tokens=size, blocks=size)))

    def granted(self) -> None:
        if self.leases:
            worker, lease = self.random.choice(self.leases)
            worker.leases.granted(lease, self.random.randrange(40))

    def computed(self) -> None:
        if self.leases:
            worker, lease = self.random.choice(self.leases)
            worker.leases.computed(lease)

    def over(self) -> None:
        if not self.leases:
            return
        worker, lease = self.leases.pop(self.random.randrange(len(self.leases)))
        match self.random.randrange(4):
            case 0:
                worker.refused(Refusal(RefusalReason.KV_BUSY, 10, 100, 90, 95, 8, 8), lease)
            case 1:
                worker.not_granted(lease)
            case quiet:
                worker.leases.give_back(lease, quiet=quiet == 2)

    def prefilled(self) -> None:
        self.one().prefilled(self.random.randrange(2000), self.random.choice((0.1, 1.0)))

    def cached(self) -> None:
        self.one().has_cached(self.random.choice(_PROMPTS).hashes(16)[: self.random.randrange(5)])

    def waited(self) -> None:
        self.clock.now_s += self.random.choice((REOPEN_S / 2, 2 * REOPEN_S))

    def lost_or_back(self) -> None:
        name = self.random.choice(_NAMES)
        self.ready = [one for one in _NAMES if (one in self.ready) != (one == name)]

    def begun_anew(self) -> None:
        name = self.random.choice(_NAMES)
        self.workers[name] = self.worker(name)

    def linked(self) -> None:
        self.links.setdefault(self.one().worker_id, {})[self.one().worker_id] = Link("tcp")

    def asked(self) -> None:
        self.prompt = self.random.choice(_PROMPTS)


def anew(ready: list[Worker], links: dict[str, dict[str, Link]], prompt: PrefixKey) -> Fleet:
    hashes = prompt.hashes(16)
    decodes = [one.as_decode(one.prefix.cached_tokens(hashes)) for one in ready if one.role.decodes]
    return Fleet(tuple(decodes), tuple([one.as_prefill() for one in ready if one.role.prefills]), links)


@pytest.mark.parametrize("between", [1, 2, 5])
def test_the_kept_view_is_the_one_made_anew_after_any_events(between: int) -> None:
    walk, view = Walk(between), View()
    for number in range(6_000):
        walk.random.choice(walk.events)()
        if walk.random.random() < 0.3:
            view.tend()
        if number % between == 0:
            ready = [walk.workers[name] for name in walk.ready]
            kept, new = view.fleet(ready, walk.links, walk.prompt), anew(ready, walk.links, walk.prompt)
            assert kept == new
            assert kept.dedicated == new.dedicated
            if new.decodes:
                for forecast in (True, False):
                    assert kept.room(forecast=forecast) == new.room(forecast=forecast)
