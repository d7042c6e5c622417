"""Time that passes only while everybody waits for it: measured times are then those of the cost model on any machine."""

import asyncio
import selectors


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its clock stands still while there is anything to do, and jumps to the next timer when there is not."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now_s


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        events = super().select(0)
        if not events:
            self._loop.now_s += max(0.0, timeout)
        return events
