"""Work that is done again and again, and outlives its own defects."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

log = logging.getLogger(__name__)


async def again_and_again(work: Callable[[], Awaitable[object]], interval_s: float, name: str) -> NoReturn:
    """Until cancelled. A defect in one turn is logged, and the next turn comes all the same."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("%s", name)
        await asyncio.sleep(interval_s)
