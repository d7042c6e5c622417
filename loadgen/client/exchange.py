"""One request of the plan, from the intended time to its result."""

import asyncio
from dataclasses import dataclass
from time import monotonic

from loadgen.client.outcome import Cut, outcome
from loadgen.client.timeline import Timeline
from loadgen.client.wire import ConnectionLostError, Pool
from loadgen.result import Result
from loadgen.schedule import Planned


class _Watched(Timeline):
    """A timeline that tells when a planned leave is due or the first token is there."""

    def __init__(self, leave_after: int | None, first: asyncio.Event, left: asyncio.Event) -> None:
        super().__init__()
        self._leave_after = leave_after
        self._first = first
        self._left = left

    def body(self, data: bytes, at_s: float) -> None:
        super().body(data, at_s)
        if self.first_s is not None and not self._first.is_set():
            self._first.set()
        if self._leave_after is not None and self.tokens_so_far >= self._leave_after:
            self._left.set()


@dataclass(slots=True)
class Client:
    """Sends planned requests over one pool. `origin_s` is the start of the run on the monotonic clock."""

    pool: Pool
    origin_s: float
    timeout_s: float = 600.0

    async def send(self, planned: Planned, request: bytes, intended_s: float) -> Result:
        """Never raises for what the target does; a cancellation gives a result first-hand through `Cut`."""
        demand = planned.demand
        plain = demand.patience_s is None and demand.leave_after_tokens is None
        first, left = asyncio.Event(), asyncio.Event()
        timeline = Timeline() if plain else _Watched(demand.leave_after_tokens, first, left)
        sent_s = monotonic()
        cut, broken = Cut.NONE, ""
        try:
            async with asyncio.timeout_at(intended_s + self.timeout_s):
                if plain:
                    await self.pool.exchange(request, timeline)
                else:
                    cut = await self._with_exits(planned, request, timeline, first, left, intended_s)
        except TimeoutError:
            cut = Cut.TIMEOUT
        except ConnectionLostError as error:
            broken = str(error)
        except asyncio.CancelledError:
            cut = Cut.INTERRUPT
        end_s = monotonic() if timeline.complete_s is None else timeline.complete_s
        timeline.end(end_s)
        return outcome(
            planned,
            timeline,
            intended_s=intended_s,
            sent_s=sent_s,
            end_s=end_s,
            origin_s=self.origin_s,
            cut=cut,
            broken=broken,
        )

    async def _with_exits(
        self,
        planned: Planned,
        request: bytes,
        timeline: Timeline,
        first: asyncio.Event,
        left: asyncio.Event,
        intended_s: float,
    ) -> Cut:
        """The exchange, ended early when patience runs out before the first token or a planned leave is due."""
        exchange = asyncio.create_task(self.pool.exchange(request, timeline))
        leave = asyncio.create_task(left.wait())
        try:
            patience = planned.demand.patience_s
            if patience is not None:
                wait = asyncio.create_task(first.wait())
                done, _ = await asyncio.wait(
                    {exchange, leave, wait},
                    timeout=max(0.0, intended_s + patience - monotonic()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                wait.cancel()
                if not done:
                    return Cut.PATIENCE
            await asyncio.wait({exchange, leave}, return_when=asyncio.FIRST_COMPLETED)
            if exchange.done():
                await exchange
                return Cut.NONE
            return Cut.PLAN
        finally:
            leave.cancel()
            if not exchange.done():
                exchange.cancel()
                await asyncio.wait({exchange})
