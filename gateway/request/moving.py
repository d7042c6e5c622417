"""One running answer on its way from one decode worker to another (R-08, R-26), step by step.

       ┌──────────────────────┐
    ASKING ──► HANDING ──► HANDED ──► GOING ──► OVER
       └──────────┴───────────┴──────────────────┘

ASKING: the other worker is asked for a place; nothing has happened to the answer, unless an earlier order has ended it late. HANDING: it
has a place, and the first was told to end the sequence with a ticket, or says that it goes on. HANDED: place and ticket are here, and
the prompt's run takes both. GOING: they were taken, and the other worker's first token is waited for. Everything that is held has one
owner at each step, and `close` gives it back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gateway.policy.admission.move import By
from gateway.request.holds import ReservationHold, TicketHold

log = logging.getLogger(__name__)


class Why(StrEnum):
    OVERRUN = "overrun"  # its worker's emergency pool is used up
    BALANCE = "balance"  # its worker is full, and another is not
    DRAIN = "drain"  # its worker takes no more answers
    ROOM = "room"  # its worker computes prompts for others, and one that does not has room now


class Step(StrEnum):
    ASKING = "asking"
    HANDING = "handing"
    HANDED = "handed"
    GOING = "going"
    OVER = "over"


TRANSITIONS: dict[Step, frozenset[Step]] = {
    Step.ASKING: frozenset({Step.HANDING, Step.HANDED, Step.OVER}),
    Step.HANDING: frozenset({Step.HANDED, Step.OVER}),
    Step.HANDED: frozenset({Step.GOING, Step.OVER}),
    Step.GOING: frozenset({Step.OVER}),
    Step.OVER: frozenset(),
}


class Outcome(StrEnum):
    """A closed list, for metrics."""

    MOVED = "moved"
    RECOMPUTED = "recomputed"  # it went on there, but what it had was computed anew
    REFUSED = "refused"  # no place there: it goes on where it is, or if it has left already stands in line
    KEPT = "kept"  # its engine does not hand it over now, and said so: it goes on where it is
    LATE = "late"  # it was not handed over in time and goes on where it is, or the place has gone
    ENDED = "ended"  # the answer was over first: it ended, failed, or its client left
    LOST = "lost"  # between the two workers: the other failed, and it goes on elsewhere if at all, or the client left


@dataclass(frozen=True, slots=True)
class Order:
    """What the policy wants. `numbers`: those behind it."""

    why: Why
    worker_id: str
    by: By
    numbers: Mapping[str, float]


class Source(Protocol):
    """The run that the answer leaves."""

    def hand_over(self) -> bool: ...

    def leave(self) -> bool: ...


#: What an answer goes on with: its place, and the ticket for its KV, if it is read and not computed anew.
Luggage = tuple[ReservationHold, TicketHold | None]


class Move:
    """`told` is called once, with what became of it. `late_s`: how long the first worker may take to hand over."""

    def __init__(
        self,
        order: Order,
        source: Source,
        ask: Callable[[], Awaitable[ReservationHold | None]],
        late_s: float,
        told: Callable[[Order, Outcome], None],
    ) -> None:
        self.order = order
        self.step = Step.ASKING
        self._source = source
        self._ask = ask
        self._late_s = late_s
        self._told = told
        self._hold: ReservationHold | None = None
        self._ticket: TicketHold | None = None
        self._left = False  # before this move has asked for it
        self._task = asyncio.create_task(self._run(), name="move")

    @property
    def over(self) -> bool:
        return self.step is Step.OVER

    def handed(self, ticket: TicketHold) -> None:
        """The first worker has ended it: as asked, or, before a place is here, because of an order that was late."""
        match self.step, self.order.by:
            case Step.HANDING, _:
                self._ticket = ticket
                self._enter(Step.HANDED)
                self._task.cancel()
            case Step.ASKING, By.TRANSFER:
                self._left, self._ticket = True, ticket
            case Step.ASKING, By.RECOMPUTE:
                self._left = True
                ticket.release()
            case _:
                ticket.release()

    async def settled(self) -> None:
        """For an answer that has left: until the other worker has said whether it takes it."""
        if self._left:
            await asyncio.wait({self._task})

    def stays(self) -> None:
        """The first worker's engine does not hand it over now. The place is given back at once: somebody else may need it."""
        if self.step is Step.HANDING:
            self._task.cancel()
            self._end(Outcome.KEPT)

    def take(self) -> Luggage | None:
        """Place and ticket are the caller's from here on; None where there is nothing to go on with."""
        if self.step is not Step.HANDED or self._hold is None:
            return None
        luggage = self._hold, self._ticket
        self._hold = self._ticket = None
        self._enter(Step.GOING)
        return luggage

    def arrived(self, pulled: bool) -> None:
        """Its first token has come from the other worker."""
        if self.step is Step.GOING:
            self._end(Outcome.MOVED if pulled else Outcome.RECOMPUTED)

    def close(self) -> None:
        """The answer is over, or has failed where it went. Harmless at any time."""
        self._task.cancel()
        between = self._left or self.step in (Step.HANDED, Step.GOING)
        self._end(Outcome.LOST if between else Outcome.ENDED)

    async def _run(self) -> None:
        try:
            self._hold = hold = await self._ask()
            if hold is None:
                self._end(Outcome.REFUSED)
                return
            if hold.trip is not None and self.order.by is By.TRANSFER:
                hold.trip.read()
            if self._left:
                self._enter(Step.HANDED)
                return
            self._enter(Step.HANDING)
            if self.order.by is By.RECOMPUTE:
                if self._source.leave():
                    self._enter(Step.HANDED)
                else:
                    self._end(Outcome.ENDED)
                return
            if not self._source.hand_over():
                self._end(Outcome.ENDED)
                return
            await self._keep(hold)
            self._end(Outcome.LATE)
        except Exception:
            log.exception("a move failed by a defect")
            self._end(Outcome.LATE)

    async def _keep(self, hold: ReservationHold) -> None:
        """The place stays ours until it has gone, or was kept in vain for long enough."""
        if hold.worker.connection is None:
            return
        lapsed = asyncio.create_task(hold.lapsed(), name="move-renewals")
        try:
            either: set[asyncio.Future[None]] = {lapsed, hold.worker.connection.attachment.ended}
            await asyncio.wait(either, timeout=self._late_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            lapsed.cancel()

    def _enter(self, step: Step) -> None:
        if step not in TRANSITIONS[self.step]:
            raise RuntimeError(f"a move cannot go from {self.step} to {step}")
        self.step = step

    def _end(self, outcome: Outcome) -> None:
        if self.step is Step.OVER:
            return
        self._enter(Step.OVER)
        for held in (self._hold, self._ticket):
            if held is not None:
                held.release()
        self._hold = self._ticket = None
        self._told(self.order, outcome)
