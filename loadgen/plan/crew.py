"""Work spread over processes, drawn only when a hand is free, and stopped by Ctrl-C or when the time is up."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self, TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

#: How often the clock is looked at while everybody works.
_LOOK_S = 0.5

#: Why a crew has stopped, after Ctrl-C.
INTERRUPTED = "interrupted"


class Crew:
    """`stopped` says why no more work is done; "" while it goes on. With one job everything stays in this process."""

    def __init__(self, jobs: int, budget_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs = jobs
        self._clock = clock
        self._began_s = clock()
        self._budget_s = budget_s
        self._pool: ProcessPoolExecutor | None = None
        self.stopped = ""

    @property
    def spent(self) -> float:
        """The share of the budget that is gone; 0 without one."""
        return (self._clock() - self._began_s) / self._budget_s if self._budget_s else 0.0

    def __enter__(self) -> Self:
        if self._jobs > 1:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._jobs, mp_context=context, initializer=_ignore_interrupts)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            if self.stopped or error is not None:
                self._leave()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def map(self, function: Callable[[Item], Found], feed: Iterator[Item]) -> Iterator[tuple[Item, Found]]:
        """In the order in which answers come. `feed` is asked for the next item only when it can begin."""
        if self.stopped:
            return
        with self.interruptible():
            yield from self._alone(function, feed) if self._pool is None else self._together(self._pool, function, feed)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C ends what is under way in it, and the work with it; what was found before is kept."""
        try:
            yield
        except KeyboardInterrupt:
            self._stop(INTERRUPTED)

    def _alone(self, function: Callable[[Item], Found], feed: Iterator[Item]) -> Iterator[tuple[Item, Found]]:
        for item in feed:
            yield item, function(item)
            if self._late():
                return

    def _together(
        self, pool: ProcessPoolExecutor, function: Callable[[Item], Found], feed: Iterator[Item]
    ) -> Iterator[tuple[Item, Found]]:
        open_: dict[Future[Found], Item] = {}
        more = True
        while True:
            while more and len(open_) < self._jobs:
                item = next(feed, None)
                if item is None:
                    more = False
                else:
                    open_[pool.submit(function, item)] = item
            if not open_ or self._late():
                return
            done, _ = wait(open_, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            for future in done:
                yield open_.pop(future), future.result()

    def _late(self) -> bool:
        if self.spent >= 1:
            self._stop("the time is up")
        return bool(self.stopped)

    def _stop(self, why: str) -> None:
        self.stopped = self.stopped or why

    def _leave(self) -> None:
        """What is under way is not waited for."""
        mine = set(self._pool._processes or ()) if self._pool is not None else set()
        for child in multiprocessing.active_children():
            if child.pid in mine:
                with suppress(ProcessLookupError):
                    child.terminate()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
