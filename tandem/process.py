"""How a gateway or worker process runs: one event loop, SIGTERM means drain, twice means now."""

import asyncio
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

import uvloop

#: Exit status after a second signal.
IMPATIENT = 130
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def serve(run: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Runs `run(stop)` until it returns; the first SIGTERM or SIGINT sets `stop`, the second ends the process."""
    uvloop.run(_serve(run))
    leave()


def leave() -> NoReturn:
    """Ends a process that has stopped everything it had: taking the interpreter down costs seconds with torch loaded."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def _serve(run: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            os._exit(IMPATIENT)
        logging.getLogger("tandem").info("%s: draining, then stopping; once more stops at once", number.name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    await run(stop)


def log_to_stderr(level: str = "INFO") -> None:
    logging.basicConfig(
        level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )


def die_with_parent(parent: int) -> None:
    """Asks the kernel for SIGTERM when `parent` dies; exits at once when it has died already."""
    if not sys.platform.startswith("linux"):
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit("the supervisor is gone")


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants' orphans, so that it can reap them."""
    if sys.platform.startswith("linux"):
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
