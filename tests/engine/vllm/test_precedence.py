"""Who goes first in the real engine is not who is kept when KV runs out."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from proto.precedence import Precedence
from proto.work import Work
from proto.worker import Role
from tests.engine.vllm.conftest import started
from tests.engine.vllm.driver import Answer, Driver, greedy

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="package")]

#: The third of three prompts of two blocks each, which grow by one, has no block; of two of seven one has to wait.
BLOCKS = 8
SHORT, LONG, TOKENS = 250, 800, 60


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def small() -> AsyncIterator[Driver]:
    driver = await started("small-0", Role.BOTH, kv_blocks=BLOCKS)
    yield driver
    await driver.close()


def work(name: str, precedence: Precedence, length: int, answer: int) -> Work:
    draw = random.Random(name)
    return Work(name, tuple(draw.randrange(100, 49_000) for _ in range(length)), greedy(answer), precedence=precedence)


async def test_the_newest_is_preempted_even_if_it_went_first(small: Driver) -> None:
    async def run(work: Work) -> tuple[int, int]:
        """Tokens and preemptions."""
        small.submit(work)
        live = small.engine._live[work.request_id]  # type: ignore[attr-defined]  # the real one, which has it
        answer = Answer()
        while not answer.outputs or not answer.last.ended:
            answer.outputs.append(await small.next(work.request_id))
        return len(answer.tokens), live.preemptions

    works = [work(each.name, each, SHORT, TOKENS) for each in (Precedence.LATE, Precedence.ORDINARY, Precedence.BEGUN)]
    ran = await asyncio.gather(*map(run, works))
    assert [tokens for tokens, _ in ran] == [TOKENS] * 3
    assert [preempted > 0 for _, preempted in ran] == [False, False, True]


async def test_what_has_begun_goes_before_prompts_and_late_ones_behind(small: Driver) -> None:
    firsts: list[str] = []

    async def run(work: Work) -> None:
        small.submit(work)
        await small.next(work.request_id)
        firsts.append(work.request_id)
        while not (await small.next(work.request_id)).delta.ended:
            pass

    names = {
        "running": Precedence.ORDINARY,
        "late": Precedence.LATE,
        "one": Precedence.ORDINARY,
        "two": Precedence.ORDINARY,
        "begun": Precedence.BEGUN,
    }
    await asyncio.gather(*[run(work(name, precedence, LONG, 4)) for name, precedence in names.items()])
    assert [name for name in firsts if name != "running"] == ["begun", "one", "two", "late"]
