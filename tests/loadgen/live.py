"""Running plans against a scripted target."""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

from loadgen.client.preflight import Preflight, Ready
from loadgen.client.processes import Execution
from loadgen.client.prompts import PromptWriter
from loadgen.client.runner import Job
from loadgen.client.target import Target
from loadgen.demand import Demand
from loadgen.result import Result
from loadgen.schedule import Planned
from loadgen.scripted.script import Book, Script
from loadgen.scripted.server import Behaviour, serving
from tests.waiting import HANG_S, until


class Stalls:
    """How far this loop fell behind during the last run: what a busy machine may have added to a time."""

    worst_s = 0.0

    @classmethod
    async def watch(cls) -> None:
        cls.worst_s = 0.0
        while True:
            due = monotonic() + 0.005
            await asyncio.sleep(0.005)
            cls.worst_s = max(cls.worst_s, monotonic() - due)


def slack_s() -> float:
    """Times may be late by this much, and never early."""
    return 0.02 + 3 * Stalls.worst_s


def near(value: float | None, expected: float) -> bool:
    return value is not None and expected - 0.002 <= value <= expected + slack_s()


def scripts(*each: Script) -> Book:
    """The i-th script for the i-th request after the probe of the preflight."""
    from loadgen.scripted.script import answer

    def book(body: dict[str, Any], number: int) -> Script:
        return answer(0.0) if number == 0 else each[(number - 1) % len(each)]

    return book


async def prepared(url: str, **target: Any) -> Ready:
    return await Preflight(Target(url, **target), None, timeout_s=HANG_S).run()


async def run(
    behaviour: Behaviour,
    requests: Sequence[Planned],
    *,
    processes: int = 1,
    concurrency: int = 0,
    timeout_s: float = HANG_S,
    **target: Any,
) -> list[Result]:
    async with serving(behaviour) as url:
        ready = await prepared(url, **target)
        behaviour.seen.clear()
        job = Job(ready.target, PromptWriter(ready.vocabulary), tuple(requests), 0.0, concurrency, timeout_s)
        watching = asyncio.create_task(Stalls.watch())
        try:
            gathered = await Execution(job, processes, lead_s=0.1 if processes == 1 else 0.5).run()
        finally:
            watching.cancel()
        # the target hears of a client's leave a moment later
        await until(lambda: not behaviour.open_streams)
        return gathered.results


def plan(*times: float, **demand: Any) -> list[Planned]:
    fields = {"prompt_tokens": 12, "output_tokens": 3} | demand
    return [Planned(i, at, Demand(**fields)) for i, at in enumerate(times)]
