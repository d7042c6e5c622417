"""What several gateways let one engine do in a step, and for how long."""

import asyncio
import math
from dataclasses import replace
from typing import cast

import pytest

from engine.base import Engine, EngineStats
from engine.dispatcher import NO_STATS, Dispatcher
from proto import services
from proto.worker import Role, StepLimit, StepReport, StepTotals
from tandem.worker.step_limits import MAX_LEASE_S, StepLimits
from tests.engine.scripted import Scripted
from tests.gateway.cluster.facts import Clock
from tests.tandem.worker.harness import Served, serve, until, work
from tests.waiting import HANG_S

MOST = 8192


class Bounded(Scripted):
    """An engine that takes limits, or not."""

    most = MOST
    running = 0

    def stats(self) -> EngineStats:
        self._alive()
        return replace(NO_STATS, most_step_tokens=self.most, running=self.running)


class Scene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.engine = Bounded()
        self.dispatcher = Dispatcher(cast(Engine, self.engine))
        self.limits = StepLimits(cast(Engine, self.engine), self.dispatcher, self.clock)

    def say(self, gateway: str, tokens: int, chunk_tokens: int = 100, lease_s: float = 3.0) -> StepReport:
        return self.limits.say(StepLimit(gateway, tokens, chunk_tokens, lease_s))


def test_the_engine_hears_of_what_has_changed_and_the_newest_word_counts() -> None:
    scene = Scene()
    assert scene.say("a", 0, 0) == StepReport(MOST, StepTotals())
    for tokens in (512, 512, 1024):
        scene.say("a", tokens)
    assert scene.engine.limits == [(512, 100), (1024, 100)]
    scene.say("a", 0, 0)
    assert scene.engine.limits[-1] == (0, 0)


def test_a_limit_ends_with_its_lease() -> None:
    scene = Scene()
    scene.say("a", 512)
    scene.clock.now_s += 2.9
    scene.limits.tend()
    assert scene.engine.limits == [(512, 100)]
    scene.say("a", 512)
    scene.clock.now_s += 2.9
    scene.limits.tend()
    scene.clock.now_s += 0.2
    scene.limits.tend()
    scene.limits.tend()
    assert scene.engine.limits == [(512, 100), (0, 0)]


@pytest.mark.parametrize("lease_s", [1e9, 1e308, math.inf])
def test_nobody_can_set_an_endless_limit(lease_s: float) -> None:
    scene = Scene()
    scene.say("a", 512, lease_s=lease_s)
    scene.clock.now_s += MAX_LEASE_S - 0.1
    scene.limits.tend()
    assert scene.engine.limits == [(512, 100)]
    scene.clock.now_s += 0.2
    scene.limits.tend()
    assert scene.engine.limits == [(512, 100), (0, 0)]


@pytest.mark.parametrize("lease_s", [0.0, -1.0, -math.inf, math.nan])
def test_a_limit_without_a_time_is_none_and_ends_the_one_before(lease_s: float) -> None:
    scene = Scene()
    scene.say("b", 512, lease_s=lease_s)
    assert scene.engine.limits == []
    scene.say("a", 512)
    scene.say("a", 256, lease_s=lease_s)
    assert scene.engine.limits == [(512, 100), (0, 0)]


def test_the_least_of_several_limits_holds() -> None:
    scene = Scene()
    scene.say("a", 1024, 900)
    scene.say("b", 512, 500)
    scene.say("c", 768, 400, lease_s=1.0)
    assert scene.engine.limits[-1] == (512, 400)
    scene.clock.now_s += 1.5
    scene.limits.tend()
    assert scene.engine.limits[-1] == (512, 500)
    scene.say("b", 0)
    assert scene.engine.limits[-1] == (1024, 900)


def test_several_gateways_never_leave_an_answer_without_its_token() -> None:
    """Each has room for its own answers alone."""
    scene = Scene()
    for number in range(50):
        scene.dispatcher.submit(work(f"r{number}"), cast("object", None), number)  # type: ignore[arg-type]  # nobody reads what is written
    scene.say("a", 30 + 64, 64)
    assert scene.engine.limits[-1] == (94, 64)
    scene.say("b", 20 + 64, 64)
    assert scene.engine.limits[-1] == (50 + 64, 64)


def test_the_answers_of_a_gateway_that_sets_no_limit_get_their_tokens_too() -> None:
    """Of one that plans with whole chunks, or with fixed roles: whoever sets the limit does not know of them."""
    scene = Scene()
    for number in range(150):
        scene.dispatcher.submit(work(f"r{number}"), cast("object", None), number)  # type: ignore[arg-type]  # nobody reads what is written
    scene.engine.running = 50  # the others wait
    scene.say("a", 30 + 64, 64)
    assert scene.engine.limits[-1] == (94, 64)
    scene.engine.running = 94
    scene.limits.tend()
    assert scene.engine.limits[-1] == (150 + 64, 64)
    scene.engine.running = 30
    scene.limits.tend()
    assert scene.engine.limits[-1] == (94, 64)


def test_an_engine_that_could_not_be_told_is_told_again() -> None:
    scene = Scene()
    scene.say("a", 512)
    scene.engine.most = 0
    assert scene.say("a", 512).most_step_tokens == 0
    scene.say("a", 0, 0)
    scene.say("a", 0, 0)
    assert scene.engine.limits == [(512, 100), (512, 100), (0, 0), (0, 0)]


def test_the_limits_of_a_dead_engine_are_nobodys_business() -> None:
    scene = Scene()
    scene.say("a", 512)
    scene.engine.dead = True
    scene.clock.now_s += 5.0
    scene.limits.tend()
    scene.say("a", 256)
    assert scene.engine.limits == [(512, 100)]


async def limited(served: Served, tokens: int, chunk_tokens: int, lease_s: float = 60.0) -> StepReport:
    limit = StepLimit("g1", tokens, chunk_tokens, lease_s)
    return await services.LIMIT_STEP.unary(served.client.channel)(limit, timeout=HANG_S)


async def test_prompts_are_computed_in_chunks_as_large_as_a_gateway_says() -> None:
    async with serve(Role.PREFILL, profile="toy", speedup=20.0) as served:

        async def chunk_tokens(before: StepTotals, seed: int) -> float:
            """Of one prompt of two."""
            done = await asyncio.gather(
                *[served.client.prefill(work(f"r{seed + one}", 2000, 1, seed=seed + one)) for one in (0, 1)]
            )
            for each in done:
                assert each.ticket is not None
                await served.client.release_ticket(each.ticket)
            after = served.worker.dispatcher.stats().totals.since(before)
            assert after.chunk_tokens == 4000
            return after.chunk_tokens / after.chunk_steps

        report = await limited(served, 0, 0)
        assert report.most_step_tokens == 2048
        assert await chunk_tokens(report.totals, 10) > 1000
        report = await limited(served, 256, 100)
        assert (
            100 < await chunk_tokens(report.totals, 20) <= 256
        )  # the first and the last ones may be of one prompt alone
        report = await limited(served, 10**6, 10**6)
        assert await chunk_tokens(report.totals, 30) > 1000


@pytest.mark.parametrize("lease_s", [0.05, 0.0])
async def test_a_limit_that_is_not_renewed_is_gone(lease_s: float) -> None:
    async with serve(Role.PREFILL, profile="toy") as served:
        await limited(served, 64, 64, lease_s)
        await until(lambda: served.worker.step_limits._set == (0, 0))
