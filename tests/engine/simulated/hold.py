"""Hangs that a test ends, where a fault script could only say for how long they last.

One injector, which ends with its test, gets another way to pass a hang: mypy would have methods left alone.
"""

import asyncio
from collections.abc import Awaitable, Callable

from engine.simulated.faults import Hang
from engine.simulated.injector import Injector


class Hold:
    """From now on, scripted hangs of one engine's queue and of its transfers last until they are let go."""

    def __init__(self, injector: Injector) -> None:
        self.begun, self._over = asyncio.Event(), asyncio.Event()
        injector.pass_hang = self._pass  # type: ignore[method-assign]  # replaced for the test

    async def _pass(self, hang: Hang | None) -> None:
        if hang is not None:
            self.begun.set()
            await self._over.wait()

    def let_go(self) -> None:
        self._over.set()


def before_each_step(injector: Injector, wait: Callable[[], Awaitable[object]]) -> None:
    """From now on one engine awaits `wait()` before every step."""

    async def pass_engine_hang() -> None:
        await wait()

    injector.pass_engine_hang = pass_engine_hang  # type: ignore[method-assign]  # replaced for the test
