"""Waiting in tests for what must happen: no test fails because its machine is slow."""

import asyncio
import time
from collections.abc import Callable

#: Bounds a hang, in seconds. Whatever takes this long on a slow and busy machine is not slow but stuck.
HANG_S = 90.0
#: How long one turn of `until` is when nothing else wants the processor.
TURN_S = 0.005
#: How often other processes are looked at.
LOOK_EVERY_S = 0.05


async def until(
    condition: Callable[[], object], within_s: float = HANG_S, otherwise: Callable[[], object] = lambda: "it did not"
) -> None:
    """Raises AssertionError unless `condition` holds in time.

    The time is what this event loop has lived through, in turns of TURN_S: a process that got no processor for ten
    seconds has lived through one turn of them, and so has everything else that runs in its loop. So a short limit says
    "by itself, without waiting for a timer", and says it on any machine. Other processes have lives of their own: for
    them leave HANG_S.
    """
    for _ in range(round(within_s / TURN_S)):
        if condition():
            return
        await asyncio.sleep(TURN_S)
    assert condition(), f"not within {within_s} s of the loop's life: {otherwise()}"


def await_true(
    condition: Callable[[], object], within_s: float = HANG_S, otherwise: Callable[[], object] = lambda: "it did not"
) -> None:
    """`until` for tests without an event loop, which wait for other processes and threads: by the clock on the wall."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {within_s} s: {otherwise()}"
        time.sleep(LOOK_EVERY_S)
