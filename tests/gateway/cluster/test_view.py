"""The fleet that routing sees is made anew where a worker has changed, and nowhere else."""

import pytest

from gateway.cluster.leases import LeaseKind
from gateway.cluster.view import View
from gateway.cluster.worker import Worker
from gateway.config import HealthConfig
from gateway.policy.prefix import PrefixKey
from gateway.policy.routing import DecodeCandidate, Fleet, Links
from gateway.policy.standing import REOPEN_S
from proto.reservation import Refusal, RefusalReason
from proto.worker import Role
from tests.gateway.cluster.facts import Clock, state
from tests.workers import worker_info

LINKS: dict[str, Links] = {}


class Scene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.one, self.other = self.workers = [self.worker("a"), self.worker("b")]
        self.view = View()

    def worker(self, name: str) -> Worker:
        return Worker(worker_info(name), name, HealthConfig(), self.clock, lambda *_: None, lambda: None)

    def seen(self, prefix: PrefixKey | None = None) -> Fleet:
        return self.view.fleet(self.workers, LINKS, prefix or PrefixKey((), ""))

    def fleet(self, prefix: PrefixKey | None = None) -> Fleet:
        seen = self.seen(prefix)
        for worker, decode in zip(self.workers, seen.decodes, strict=True):
            assert decode == worker.as_decode(decode.cached_tokens)
        assert seen.prefills == tuple(worker.as_prefill() for worker in self.workers)
        return seen


def test_nothing_has_changed_and_the_fleet_is_the_same_one() -> None:
    scene = Scene()
    assert scene.fleet() is scene.fleet()


def test_news_is_looked_at_when_it_comes_and_not_while_a_prompt_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, looks = Scene(), list[str]()
    look = Worker.as_decode

    def counted(self: Worker, cached_tokens: int) -> DecodeCandidate:
        looks.append(self.worker_id)
        return look(self, cached_tokens)

    before = scene.seen()
    monkeypatch.setattr(Worker, "as_decode", counted)
    scene.one.heard(state(blocks_used=60))
    scene.view.tend()
    assert looks == ["a"]
    monkeypatch.setattr(Fleet, "but", None)  # nor is it put in its place only then
    after = scene.seen()
    assert looks == ["a"]
    assert (before.decodes[0].blocks_free, after.decodes[0].blocks_free) == (100, 40)
    assert after.decodes[1] is before.decodes[1]


def test_whatever_changes_a_worker_is_seen_and_the_others_stay_as_they_are() -> None:
    scene = Scene()
    one = scene.one
    lease = one.leases.take(LeaseKind.RESERVATION, "r", ttl_s=9.0, blocks=10)
    prefill = one.leases.take(LeaseKind.PREFILL, "r", ttl_s=9.0, tokens=300)
    for change in (
        lambda: one.heard(state(blocks_reserved=5, blocks_promised=20.0)),
        lambda: one.leases.granted(lease, 12),
        lambda: one.leases.computed(prefill),
        lambda: one.prefilled(1_000, 0.5),
        lambda: one.leases.give_back(lease),
        lambda: one.heard(state(blocks_used=50)),
    ):
        before = scene.fleet()
        change()
        after = scene.fleet()
        assert after is not before
        assert after.decodes[1] is before.decodes[1]


def test_a_door_that_was_shut_by_a_refusal_is_seen_to_open_with_time() -> None:
    scene = Scene()
    asked = scene.one.leases.take(LeaseKind.RESERVATION, "r", ttl_s=9.0, blocks=10)
    scene.one.refused(Refusal(RefusalReason.KV_BUSY, 10, 100, 90, 90, 8, 8), asked)
    assert scene.fleet().decodes[0].closed
    scene.clock.now_s += 2 * REOPEN_S
    assert not scene.fleet().decodes[0].closed


def test_each_prompt_sees_what_is_cached_of_it() -> None:
    scene = Scene()
    prompt, other = PrefixKey(range(64), ""), PrefixKey(range(100, 164), "")
    assert [decode.cached_tokens for decode in scene.fleet(prompt).decodes] == [0, 0]
    scene.one.has_cached(prompt.hashes(16))
    for prefix, cached in ((prompt, 64), (other, 0), (prompt, 64)):
        assert [decode.cached_tokens for decode in scene.fleet(prefix).decodes] == [cached, 0]


def test_another_role_and_other_workers_are_seen_at_once() -> None:
    scene = Scene()
    scene.fleet()
    scene.one.heard(state(role=Role.DECODE))
    seen = scene.seen()
    assert ([one.worker_id for one in seen.decodes], [one.worker_id for one in seen.prefills]) == (["a", "b"], ["b"])
    scene.workers = [scene.other, scene.worker("c")]
    assert [one.worker_id for one in scene.fleet().decodes] == ["b", "c"]


def test_when_the_last_worker_has_left_nobody_is_seen() -> None:
    scene = Scene()
    scene.fleet()
    scene.workers = []
    assert scene.fleet().decodes == ()
