"""Runs work for as long as its client stays."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.types import Receive


class BrokenStreamError(Exception):
    """Makes the server close the connection without the last chunk, so that no client takes the stream for whole."""


async def while_connected(
    receive: Receive, work: Coroutine[Any, Any, None], answered: Callable[[], bool] = lambda: False
) -> None:
    """Cancels `work` the moment the client leaves, in whatever phase it is (B-34, B-35); returns once it has ended.

    The request's body must have been read. Once `answered`, the server reports the end of the exchange in the same
    way as a client that leaves, and work may finish in peace. Work that was cancelled by itself ends the connection.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            if not answered():
                task.cancel()
            await asyncio.wait((task,))
            _raise_defect(task)
        elif task.cancelled():
            raise BrokenStreamError("dropped")
        else:
            task.result()
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _raise_defect(task: "asyncio.Task[None]") -> None:
    """The client is gone, so a broken stream is no news; anything else is."""
    if not task.cancelled():
        error = task.exception()
        if error is not None and not isinstance(error, BrokenStreamError):
            raise error
