"""A pull from a writer that is lost, which the reader's engine may never notice (shared memory has no end of file)."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gateway.cluster.worker import Worker

#: A writer that was draining has left when its tickets were read: the first token is on its way, so it gets time.
LEFT_IN_ORDER_S = 5.0


class WriterWatch:
    """While entered, `lost` is called with the writer's name if the connection to it breaks, or is broken already."""

    def __init__(self, writer: Worker, lost: Callable[[str], None]) -> None:
        self._writer = writer
        self._lost = lost
        self._ended: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        connection = self._writer.connection
        if connection is None:
            self._gone()
        else:
            self._ended = connection.attachment.ended
            self._ended.add_done_callback(self._gone)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended is not None:
            self._ended.remove_done_callback(self._gone)
        if self._timer is not None:
            self._timer.cancel()

    def _gone(self, _: object = None) -> None:
        state = self._writer.state
        if state is not None and state.draining:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LEFT_IN_ORDER_S, self._lost, self._writer.worker_id)
        else:
            self._lost(self._writer.worker_id)
