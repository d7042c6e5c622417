"""What a worker's states make of it for routing."""

from gateway.cluster.worker import Worker
from gateway.config import HealthConfig
from gateway.policy.need import Need
from tests.gateway.cluster.facts import Clock, state
from tests.workers import worker_info


def worker() -> Worker:
    return Worker(worker_info(), "there:1", HealthConfig(), Clock(), lambda *_: None, lambda: None)


def test_room_is_what_promises_and_the_pool_leave() -> None:
    one = worker()
    one.heard(state(blocks_reserved=10, blocks_promised=40.0, pool_blocks=5))
    assert one.headroom_blocks == 55.0


def test_a_worker_older_than_promises_does_not_look_empty() -> None:
    """It has no field for them, so every prompt was sent to it first, and refused there."""
    old = worker()
    old.heard(state(blocks_reserved=98))
    assert old.headroom_blocks is None
    need = Need(prompt_tokens=100, growth_tokens=1000, answers=1, likely_tokens=60)
    assert not old.as_decode(0).fits(need)
