"""The newest bound on an engine's steps, on its way to the engine's process."""

import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


class StepLimit:
    """`call` sets a limit in the engine's process, and answers with the tokens of a step that has none, or 0 where no limit is
    taken. `most` is that answer; 0 until it is known, and after a call that failed."""

    def __init__(self, call: Callable[[int, int], Awaitable[int]]) -> None:
        self.most = 0
        self._call = call
        self._wanted = 0, 0
        self._telling = False

    def set(self, tokens: int, chunk_tokens: int) -> bool:
        """Whether somebody has to `tell`: nobody does so yet."""
        self._wanted, telling, self._telling = (tokens, chunk_tokens), self._telling, True
        return not telling

    async def tell(self) -> None:
        """The newest limit, and a newer one that came meanwhile, but none in between."""
        self._telling, told = True, None
        try:
            while told != self._wanted:
                told = self._wanted
                self.most = await self._call(*told)
        except Exception as error:
            self.most = 0
            log.warning("the engine's steps stay as they are: %s", error)
        finally:
            self._telling = False
