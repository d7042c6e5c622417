"""Progress in lines, for a log or a pipe: where there is no terminal nothing can be drawn over."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: Between two lines.
EVERY_S = 10.0


@dataclass(slots=True)
class Lines:
    """`say` gets the stage that is under way whenever somebody wants to know; nothing before there is one."""

    say: Callable[[str], object]
    clock: Callable[[], float] = time.monotonic
    _began_s: float = field(init=False)
    _newest: str = ""

    def __post_init__(self) -> None:
        self._began_s = self.clock()

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        """`total` 0: not known yet."""
        self._newest = f"{stage}: {done} of {total}" if total else stage

    def tell(self) -> None:
        if self._newest:
            self.say(f"{self._newest}, {self.clock() - self._began_s:.0f} s")

    @contextmanager
    def again_and_again(self, every_s: float = EVERY_S) -> Iterator[None]:
        """Meanwhile in a thread: one step of the work may take minutes."""
        over = threading.Event()

        def run() -> None:
            while not over.wait(every_s):
                self.tell()

        thread = threading.Thread(target=run, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
