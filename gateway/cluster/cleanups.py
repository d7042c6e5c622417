"""Releases that must reach a worker even though nobody waits for them any more."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from gateway.cluster.client import WorkerLostError
from proto.fault import FaultError

log = logging.getLogger(__name__)


class Cleanups:
    """Tasks of their own, so that cancelling a request cannot cancel its releases; tracked, so that idle means zero."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:
        task = asyncio.create_task(self._run(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, timeout_s: float) -> bool:
        """Waits until everything that was spawned has ended; False if something still runs."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        return not self._tasks

    async def _run(self, work: Coroutine[Any, Any, object], name: str) -> None:
        try:
            await work
        except WorkerLostError as error:
            # It has freed everything, or will: by the end of our stream, a lease or a time to live.
            log.debug("%s failed: %s", name, error)
        except (FaultError, TimeoutError) as error:
            log.warning("%s failed: %s", name, error)
