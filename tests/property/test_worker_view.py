"""The fleet that routing sees, kept from turn to turn, is the one that would be made anew, whatever happens to workers."""

from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from gateway.cluster.leases import Lease, LeaseKind
from gateway.cluster.view import View
from gateway.cluster.worker import Worker
from gateway.config import HealthConfig
from gateway.policy.prefix import PrefixKey
from gateway.policy.routing import Fleet, Link, Links
from gateway.policy.standing import REOPEN_S
from proto.reservation import Refusal, RefusalReason
from proto.worker import Role
from tests.gateway.cluster.facts import Clock, state
from tests.workers import worker_info

_PROMPTS = [PrefixKey(range(start, start + 64), "") for start in (0, 32, 500)]
_NAMES = ("a", "b", "c")
_AT = st.integers(0, 99)  # of something that there is, modulo how many


class Watching(RuleBasedStateMachine):
    @initialize()
    def build(self) -> None:
        self.clock = Clock()
        self.links: dict[str, dict[str, Link]] = {}
        self.workers = {name: self.worker(name) for name in _NAMES}
        self.ready = list(_NAMES)
        self.view = View()
        self.leases: list[tuple[Worker, Lease]] = []

    def worker(self, name: str) -> Worker:
        return Worker(worker_info(name), name, HealthConfig(), self.clock, lambda *_: None, lambda: None)

    def one(self, at: int) -> Worker:
        return self.workers[_NAMES[at % len(_NAMES)]]

    @rule(
        at=_AT,
        used=st.integers(0, 100),
        promised=st.integers(0, 100),
        pool=st.integers(0, 9),
        role=st.sampled_from(Role),
    )
    def heard(self, at: int, used: int, promised: int, pool: int, role: Role) -> None:
        self.one(at).heard(
            state(role=role, blocks_used=used, blocks_reserved=used, blocks_promised=float(promised), pool_blocks=pool)
        )

    @rule(at=_AT, kind=st.sampled_from(LeaseKind), size=st.integers(0, 40))
    def take(self, at: int, kind: LeaseKind, size: int) -> None:
        worker = self.one(at)
        self.leases.append((worker, worker.leases.take(kind, "r", ttl_s=9.0, tokens=size, blocks=size)))

    @precondition(lambda self: self.leases)
    @rule(at=_AT, blocks=st.integers(0, 40))
    def granted(self, at: int, blocks: int) -> None:
        worker, lease = self.leases[at % len(self.leases)]
        worker.leases.granted(lease, blocks)

    @precondition(lambda self: self.leases)
    @rule(at=_AT)
    def computed(self, at: int) -> None:
        worker, lease = self.leases[at % len(self.leases)]
        worker.leases.computed(lease)

    @precondition(lambda self: self.leases)
    @rule(at=_AT, how=st.sampled_from(("back", "quiet", "refused", "vain")))
    def over(self, at: int, how: str) -> None:
        worker, lease = self.leases.pop(at % len(self.leases))
        match how:
            case "refused":
                worker.refused(Refusal(RefusalReason.KV_BUSY, 10, 100, 90, 95, 8, 8), lease)
            case "vain":
                worker.not_granted(lease)
            case _:
                worker.leases.give_back(lease, quiet=how == "quiet")

    @rule(at=_AT, tokens=st.integers(1, 2000), seconds=st.sampled_from((0.1, 1.0)))
    def prefilled(self, at: int, tokens: int, seconds: float) -> None:
        self.one(at).prefilled(tokens, seconds)

    @rule(at=_AT, prompt=st.sampled_from(_PROMPTS), blocks=st.integers(0, 4))
    def cached(self, at: int, prompt: PrefixKey, blocks: int) -> None:
        self.one(at).has_cached(prompt.hashes(16)[:blocks])

    @rule(seconds=st.sampled_from((REOPEN_S / 2, 2 * REOPEN_S)))
    def waits(self, seconds: float) -> None:
        self.clock.now_s += seconds

    @rule(at=_AT)
    def lost_or_back(self, at: int) -> None:
        name = _NAMES[at % len(_NAMES)]
        if name in self.ready:
            self.ready.remove(name)
        else:
            self.ready.append(name)

    @rule(at=_AT)
    def begins_anew(self, at: int) -> None:
        self.workers[_NAMES[at % len(_NAMES)]] = self.worker(_NAMES[at % len(_NAMES)])

    @rule(at=_AT, other=_AT)
    def linked(self, at: int, other: int) -> None:
        self.links.setdefault(self.one(at).worker_id, {})[self.one(other).worker_id] = Link("tcp")

    @rule(prompt=st.sampled_from(_PROMPTS))
    def looks(self, prompt: PrefixKey) -> None:
        """Not after every event: several of them may lie between two looks."""
        ready = [self.workers[name] for name in self.ready]
        assert self.view.fleet(ready, self.links, prompt) == anew(ready, self.links, prompt)


def anew(ready: list[Worker], links: Mapping[str, Links], prompt: PrefixKey) -> Fleet:
    hashes = prompt.hashes(16)
    decodes = [one.as_decode(one.prefix.cached_tokens(hashes)) for one in ready if one.role.decodes]
    return Fleet(tuple(decodes), tuple([one.as_prefill() for one in ready if one.role.prefills]), links)


TestWatching = Watching.TestCase
TestWatching.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
