"""When workers are told how long their steps may be, what they are told, and how the policy plans."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.cluster.client import WorkerLostError
from gateway.cluster.cluster import Cluster
from gateway.cluster.worker import Worker
from gateway.policy.need import Need
from gateway.policy.roles import Aims, Fluid, Knobs
from gateway.policy.routing import Path, Placement
from gateway.request.step_limits import LEASE_S, StepLimits
from proto.fault import Fault, FaultError, FaultKind
from proto.worker import StepLimit, StepReport, StepTotals, WorkerState
from tests.gateway.cluster.facts import Clock
from tests.waiting import until

WHOLE = Knobs(largest_step_tokens=8192, smallest_chunk_tokens=8192, leans=False)
BOUNDED = Knobs(leans=False)


class Client:
    """A worker's end of the call. `held`: an answer waits until it is set."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.totals = StepTotals()
        self.said: list[StepLimit] = []
        self.failure: Exception | None = None
        self.held = asyncio.Event()
        self.held.set()

    async def limit_step(self, limit: StepLimit, timeout_s: float) -> StepReport:
        self.said.append(limit)
        await self.held.wait()
        if self.failure is not None:
            raise self.failure
        return StepReport(self.most, self.totals)

    @property
    def tokens(self) -> list[int]:
        return [limit.step_tokens for limit in self.said]


class Scene:
    """Workers by name, each with the tokens of its engine's step."""

    def __init__(self, **most: int) -> None:
        self.clock = Clock()
        self.policy = Fluid(Aims(1.0, 0.03), self.clock, WHOLE)
        self.clients = {name: Client(tokens) for name, tokens in most.items()}
        self.workers = [self.worker(name) for name in most]
        self.heard: list[tuple[str, StepTotals]] = []
        cluster = cast(Cluster, SimpleNamespace(gateway_id="g"))
        self.limits = StepLimits(
            self.policy,
            cluster,
            self.clock,
            lambda worker, totals: self.heard.append((worker.worker_id, totals)),
            BOUNDED,
            WHOLE,
        )

    def worker(self, name: str) -> Worker:
        fields = {
            "worker_id": name,
            "state": None,
            "connection": SimpleNamespace(client=self.clients[name]),
            "ready": True,
        }
        return cast(Worker, SimpleNamespace(**fields, health=SimpleNamespace(reason="gone")))

    async def met(self) -> None:
        self.limits.meet(self.workers)
        await self.quiet()

    async def quiet(self) -> None:
        await until(lambda: all(one.telling is None for one in self.limits._listeners.values()))

    def attached(self, gateways: int) -> None:
        for worker in self.workers:
            worker.state = cast(WorkerState, SimpleNamespace(attached_gateways=gateways))

    def takes(self, key: str, tokens: int = 4000, at: str = "a") -> None:
        self.policy.taken(key, Placement(at, Path.COLOCATED, "fluid"), Need(tokens, 100, 1, expected_tokens=100.0))

    def answers(self, count: int, at: str = "a") -> None:
        self.policy.stepped(at, StepTotals())
        for number in range(count):
            self.takes(f"answer {number}", 100, at)
            self.policy.prefilled(f"answer {number}")

    def forgets(self) -> None:
        for client in self.clients.values():
            client.said.clear()


async def test_workers_are_asked_before_they_are_told_and_the_least_of_their_steps_is_planned_with() -> None:
    scene = Scene(a=8192, b=1024)
    await scene.met()
    assert {name: client.said[0] for name, client in scene.clients.items()} == {
        name: StepLimit("g", 0, 0, LEASE_S) for name in "ab"
    }
    assert scene.policy.knobs.bounds_chunks
    assert (scene.policy.knobs.largest_step_tokens, scene.policy.knobs.smallest_chunk_tokens) == (1024, 64)
    assert {name for name, _ in scene.heard} == {"a", "b"}


@pytest.mark.parametrize("left", [300, 0])
async def test_few_prompts_do_not_hold_back_those_of_another_gateway(left: int) -> None:
    """The least limit of several gateways holds. That of one with a short prompt was as short as this wanted, and the long one of
    another that it waited behind took 3.2 s for 1.3. What the engine computes of that one is counted off our own."""
    scene = Scene(a=8192)
    scene.attached(2)
    await scene.met()
    scene.answers(20)
    book = scene.policy.book("a")
    book.kv_tokens = 1000.0  # no room is left
    scene.takes("short", 300)
    book.stepped(StepTotals(chunk_steps=1, chunk_s=0.05, chunk_tokens=300 - left), 1.0)
    assert book.backlog
    assert book.backlog.tokens == left
    most = book.most_tokens(scene.policy.law, scene.policy.aims, scene.policy.knobs)
    assert scene.policy.budget("a") == most
    scene.attached(1)
    await scene.met()
    book.stepped(StepTotals(), 1.0)
    assert (scene.policy.budget("a") < most) is (left > 0)  # where nobody knows how much is left, nor there


async def test_a_step_is_never_longer_than_the_policy_wants_it() -> None:
    scene = Scene(a=8192)
    await scene.met()
    assert scene.policy.knobs.largest_step_tokens == BOUNDED.largest_step_tokens


async def test_beside_answers_a_worker_is_told_the_steps_that_these_allow() -> None:
    scene = Scene(a=8192)
    await scene.met()
    scene.forgets()
    scene.answers(20)
    scene.takes("long")
    scene.limits.attend("a")
    await scene.quiet()
    said = scene.clients["a"].said[-1]
    assert said == StepLimit("g", scene.policy.budget("a"), scene.policy.chunk_tokens("a"), LEASE_S)
    assert 20 + 64 <= said.step_tokens < 1024
    assert said.chunk_tokens == said.step_tokens - 20
    assert scene.limits.bounds == {"a": (said.step_tokens, said.chunk_tokens)}
    scene.clock.now_s += LEASE_S
    assert scene.limits.bounds == {}
    assert scene.limits.in_force("a") == 0


async def test_one_word_is_under_way_and_the_next_is_the_newest() -> None:
    """Three events meanwhile are one word, and it is of the last."""
    scene = Scene(a=8192)
    await scene.met()
    scene.forgets()
    client = scene.clients["a"]
    client.held.clear()
    scene.limits.attend("a")
    await until(lambda: len(client.said) == 1)
    for count in (5, 10, 20):
        scene.answers(count)
        scene.limits.attend("a")
    assert len(client.said) == 1
    client.held.set()
    await scene.quiet()
    assert client.tokens[1] == scene.policy.budget("a")
    assert len(client.said) == 2


async def told() -> Scene:
    """A worker with answers and a prompt that keeps what it was told."""
    scene = Scene(a=8192)
    await scene.met()
    scene.answers(20)
    scene.takes("long")
    scene.limits.attend("a")
    await scene.quiet()
    scene.forgets()
    return scene


async def test_who_keeps_it_already_is_not_told_again_before_the_lease_nears_its_end() -> None:
    scene = await told()
    for _ in range(3):
        scene.limits.attend("a")
        await scene.quiet()
    assert scene.clients["a"].said == []
    scene.clock.now_s += LEASE_S / 3
    scene.limits.attend("a")
    await scene.quiet()
    assert len(scene.clients["a"].said) == 1


async def test_steps_that_were_heard_of_change_the_next_word() -> None:
    scene = await told()
    scene.clock.now_s += 0.5
    scene.policy.stepped("a", StepTotals(decode_steps=1, decode_s=0.5, answers=20))
    scene.limits.attend("a")
    await scene.quiet()
    assert len(scene.clients["a"].said) == 1


@pytest.mark.parametrize("failure", [FaultError(Fault(FaultKind.INTERNAL, "UNIMPLEMENTED: ")), TimeoutError()])
async def test_where_one_worker_cannot_be_told_the_policy_plans_with_whole_chunks(failure: Exception) -> None:
    scene = Scene(a=8192, b=8192)
    scene.clients["b"].failure = failure
    await scene.met()
    assert scene.policy.knobs == WHOLE
    scene.forgets()
    scene.takes("p")
    scene.limits.attend("a")
    await scene.met()
    assert scene.clients["a"].said == scene.clients["b"].said == []
    scene.clients["b"].failure = None
    scene.clock.now_s += 6.0
    await scene.met()
    assert scene.policy.knobs.bounds_chunks
    assert scene.clients["b"].tokens[0] == 0


async def test_an_engine_that_takes_no_limit_is_one_that_cannot_be_told() -> None:
    scene = Scene(a=8192, b=0)
    await scene.met()
    assert scene.policy.knobs == WHOLE
    scene.workers[1].ready = False  # type: ignore[misc]  # read-only elsewhere
    await scene.met()
    assert scene.policy.knobs.bounds_chunks


async def test_a_fleet_that_has_not_answered_yet_and_one_of_tiny_steps_have_whole_chunks() -> None:
    scene = Scene(a=64)
    assert scene.policy.knobs == WHOLE
    await scene.met()
    assert scene.policy.knobs == WHOLE


async def test_a_lost_worker_says_nothing_of_its_engine_and_is_asked_when_it_is_back() -> None:
    scene = Scene(a=8192, b=8192)
    await scene.met()
    scene.limits.attend("a")
    scene.limits.attend("b")
    await scene.quiet()
    assert list(scene.limits.bounds) == ["a", "b"]
    scene.clients["b"].failure = WorkerLostError("gone")
    scene.forgets()
    scene.clock.now_s += LEASE_S / 2
    scene.limits.attend("b")
    await scene.quiet()
    assert scene.policy.knobs.bounds_chunks
    assert list(scene.limits.bounds) == ["a"]
    scene.clients["b"].failure = None
    await scene.met()
    assert scene.clients["b"].tokens[1] == 0


async def test_another_epoch_is_another_engine() -> None:
    scene = Scene(a=8192)
    await scene.met()
    scene.clients["a"].most = 512
    scene.workers = [scene.worker("a")]
    scene.forgets()
    await scene.met()
    assert scene.clients["a"].tokens[0] == 0
    assert scene.policy.knobs.largest_step_tokens == 512


async def test_workers_with_prompts_are_looked_at_and_others_are_not() -> None:
    scene = Scene(a=8192, b=8192)
    await scene.met()
    scene.forgets()
    scene.policy.stepped("a", StepTotals())
    scene.takes("p")
    scene.limits.attend("a")
    for number in range(3):
        scene.answers(10 * (number + 1))
        await until(lambda: scene.limits.in_force("a") == scene.policy.budget("a"))
    assert scene.clients["b"].said == []
    scene.policy.ended("p")
    for number in range(30):
        scene.policy.ended(f"answer {number}")
    await until(lambda: scene.limits._timer is None)


async def test_answers_alone_keep_the_lease() -> None:
    """Another gateway's prompts may share their steps."""
    scene = Scene(a=8192)
    await scene.met()
    scene.answers(3)
    scene.limits.attend("a")
    await scene.quiet()
    scene.forgets()
    scene.limits._look()
    assert scene.clients["a"].said == []
    scene.clock.now_s += LEASE_S / 2
    scene.limits._look()
    await scene.quiet()
    assert len(scene.clients["a"].said) >= 1
    assert scene.limits._timer is not None
    scene.limits._timer.cancel()
