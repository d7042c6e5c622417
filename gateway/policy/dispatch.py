"""Whose turn it is for KV, where it goes, and who is turned away. Pure: fleet and clock are given.

One object of this kind stands behind every gateway and behind every simulation of one: the gateway's desk runs it with
futures, the simulator in virtual time.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import repeat
from typing import Generic, TypeVar

from gateway.policy.admission import DrainRate, Entry
from gateway.policy.bid import Ask, Bid, Line, T
from gateway.policy.group import emptied, place_group
from gateway.policy.prefix import BlockHashes
from gateway.policy.rejection import Reject
from gateway.policy.routing import Fleet, NoRoute, Outlook, Place, Placement, Rules, Wait, place
from gateway.policy.turned_away import EARLY, TurnedAway, Why

D = TypeVar("D", bound="Placement | TurnedAway")

#: bid, fleet, how many wait, admissions per second -> why it is refused before anything is computed
Objection = Callable[[Bid, Fleet, int, float], Reject | None]
#: bid, fleet, rules, what was decided; for whoever keeps an account
Decided = Callable[[Bid, Fleet, Rules, "Outlook | TurnedAway"], None]


def _no_objection(bid: Bid, fleet: Fleet, waiting: int, admitted_per_s: float) -> Reject | None:
    return None


def _nobody_listens(bid: Bid, fleet: Fleet, rules: Rules, decided: "Outlook | TurnedAway") -> None:
    pass


class Dispatch(Generic[T]):
    """`fleet` shows what may take a prompt now; `final` tells whether waiting for a way out of a NoRoute is pointless.

    `gone` tells of an item that wants its turn no more, though it is still in line. `objection` is asked of newcomers,
    `decided` is told of everything but waiting.
    """

    def __init__(
        self,
        line: Line[T],
        rules: Rules,
        fleet: Callable[[BlockHashes], Fleet],
        final: Callable[[NoRoute], bool],
        clock: Callable[[], float],
        gone: Callable[[T], bool] = lambda _: False,
        placing: Place = place,
        objection: Objection = _no_objection,
        decided: Decided = _nobody_listens,
    ) -> None:
        self._line = line
        self._rules = rules
        self._fleet = fleet
        self._final = final
        self._clock = clock
        self._gone = gone
        self._place = placing
        self._objection = objection
        self._decided = decided
        self._rate = DrainRate()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    def arrive(self) -> int:
        """The place in line of a newcomer."""
        return self._line.arrive()

    def outlook(self, bid: Bid) -> Outlook:
        return self._look(bid)[1]

    def _look(self, bid: Bid) -> tuple[Fleet, Outlook]:
        fleet = self._fleet(bid.prefix)
        return fleet, self._placed(bid, fleet, self._fleet, self._place)

    def _placed(self, bid: Bid, fleet: Fleet, fleet_of: Callable[[BlockHashes], Fleet], place: Place) -> Outlook:
        """`fleet`: that of the bid's own prefix; its parts have others."""
        if bid.parts:
            return place_group([each.member for each in bid.parts], fleet_of, self._rules, place)
        return place(bid.need, fleet, self._rules, bid.avoid, bid.never)

    def enter(self, bid: Bid, item: T) -> Placement | TurnedAway | Entry[Ask[T]]:
        """A place at once if nobody waits, so that nobody is overtaken; else an entry in the line.

        After an entry the caller serves `turns`, then `overflow`.
        """
        fleet, outlook = self._look(bid)
        entry = Entry(bid.arrival, Ask(bid, item))
        if isinstance(outlook, NoRoute) and self._final(outlook):
            return self._tell(bid, fleet, self._away(Why.NO_ROUTE, outlook))
        if not bid.asks and (reject := self._objection(bid, fleet, len(self._line), self._rate.per_s(self._clock()))):
            return self._tell(bid, fleet, self._rejected(reject, outlook))
        if isinstance(outlook, Placement) and not len(self._line):
            self._line.take(entry)
            return self._tell(bid, fleet, outlook)
        self._line.push(entry)
        return entry

    def turns(self) -> Iterator[tuple[Ask[T], Placement | TurnedAway]]:
        """Everybody at the head of the line who can be served now, one by one.

        The caller takes each place before it asks for the next turn: the view of the fleet must have changed by then.
        """
        while entry := self._line.head:
            ask = entry.item
            if self._gone(ask.item):
                self._line.remove(entry)
                continue
            fleet, outlook = self._look(ask.bid)
            if isinstance(outlook, Placement):
                self._line.take(entry)
                yield ask, self._tell(ask.bid, fleet, outlook)
            elif isinstance(outlook, NoRoute) and self._final(outlook):
                self._line.remove(entry)
                yield ask, self._tell(ask.bid, fleet, self._away(Why.NO_ROUTE, outlook))
            else:
                return

    @property
    def head(self) -> Bid | None:
        """Whose turn is next."""
        entry = self._line.head
        return None if entry is None else entry.item.bid

    def insist(self, worker_id: str) -> tuple[Ask[T], Placement] | None:
        """The head of the line, if it waits for room, with a place at this worker whether that seems to have room or not."""
        if (entry := self._line.head) is None or self._gone(entry.item.item):
            return None
        bid = entry.item.bid
        fleet, outlook = self._look(bid)
        if not isinstance(outlook, Wait):
            return None

        def as_if_empty(prefix: BlockHashes) -> Fleet:
            return emptied(self._fleet(prefix))

        # the others stay in sight: who computes the prompt, and which workers lean, is the policy's choice as ever
        others = {each.worker_id for each in fleet.decodes} - {worker_id}
        placed = self._placed(_kept_from(bid, others), as_if_empty(bid.prefix), as_if_empty, self._place)
        if not isinstance(placed, Placement):
            return None
        self._line.take(entry)
        return entry.item, self._tell(bid, fleet, placed)

    def overflow(self) -> Iterator[tuple[Ask[T], TurnedAway]]:
        """More wait than may: the last in line goes. Whoever has had a turn, and was sent back, keeps the place."""
        while self._line.over_limit and (entry := self._line.last):
            ask = entry.item
            if ask.bid.asks:
                return
            self._line.remove(entry)
            fleet, outlook = self._look(ask.bid)
            yield ask, self._tell(ask.bid, fleet, self._away(Why.QUEUE_FULL, outlook))

    def leave(self, entry: Entry[Ask[T]]) -> bool:
        """Out of the line; False when it was not in it. The next in line may now have a turn."""
        return self._line.remove(entry)

    def granted(self) -> None:
        """A worker has said yes; the basis of `Retry-After`."""
        self._rate.admitted(self._clock())

    def too_late(self, bid: Bid, waited_s: float, why: Why = Why.QUEUE_TIMEOUT) -> TurnedAway:
        """What a bid is told whose time in line is over."""
        fleet, outlook = self._look(bid)
        return self._tell(bid, fleet, self._away(why, outlook, waited_s))

    def settle(self, bid: Bid, prompt_tokens: int, output_tokens: int) -> None:
        """It is over, after so many tokens: whoever was charged for more gets the rest back. Twice is harmless."""
        self._line.settle(Entry(bid.arrival, Ask(bid, None)), prompt_tokens, output_tokens)

    def _tell(self, bid: Bid, fleet: Fleet, decided: D) -> D:
        if not bid.parts:
            self._decided(bid, fleet, self._rules, decided)
            return decided
        also = decided.also if isinstance(decided, Placement) else ()
        for each, its in zip(bid.parts, (decided, *also) if also else repeat(decided), strict=False):
            self._decided(each, fleet, self._rules, its)
        return decided

    def _rejected(self, reject: Reject, outlook: Outlook) -> TurnedAway:
        waiting = len(self._line)
        return TurnedAway(EARLY[reject.reason], outlook, waiting, reject.retry_after_s, 0.0, reject.numbers)

    def _away(self, why: Why, outlook: Outlook, waited_s: float = 0.0) -> TurnedAway:
        waiting = len(self._line)
        return TurnedAway(why, outlook, waiting, self._rate.retry_after_s(waiting, self._clock()), waited_s)


def _kept_from(bid: Bid, workers: set[str]) -> Bid:
    """The same bid, were these never to take it."""
    parts = tuple([_kept_from(part, workers) for part in bid.parts])
    return replace(bid, never=bid.never | workers, parts=parts)
