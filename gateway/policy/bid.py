"""One prompt that wants a place, and the line that it stands in."""

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from gateway.policy.admission import Entry
from gateway.policy.control.decisions import Decision
from gateway.policy.control.plan import Plan
from gateway.policy.fairness.claim import Claim
from gateway.policy.group import Member
from gateway.policy.need import Need
from gateway.policy.prefix import BlockHashes

T = TypeVar("T")
#: Of a bid that is not in line yet.
_NOBODYS = Claim()


@dataclass(eq=False, slots=True)
class Bid:
    """One prompt that wants a place. `avoid` are workers that failed it, `never` those that can never take it.

    `asks` counts how often a worker was asked for it: whoever has been sent back keeps the place in line. `claim` is by
    what it stands in line; `plan` and `decision`, where there is a controller, what is known of it and its account.
    `parts`: the prompts of a request that has several, which get their places together; then `need` is that of all and
    `plan` that of the longest. `moves`: an answer under way asks one worker, out of line, and
    nobody waits if that refuses. `emergency`: it leaves a worker without KV. Nothing that a client sends says either.
    """

    request_id: str
    need: Need
    prefix: BlockHashes
    arrival: int
    avoid: set[str] = field(default_factory=set)
    never: set[str] = field(default_factory=set)
    asks: int = 0
    tenant: str = ""
    priority: int = 0
    claim: Claim = _NOBODYS
    plan: Plan | None = None
    decision: Decision | None = None
    parts: tuple["Bid", ...] = ()
    moves: bool = False
    emergency: bool = False

    @property
    def prompts(self) -> "tuple[Bid, ...]":
        return self.parts or (self,)

    @property
    def member(self) -> Member:
        return Member(self.need, self.prefix, self.avoid, self.never)


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """A bid in line. `item` is the caller's own."""

    bid: Bid
    item: T


class Line(Protocol[T]):
    """The order in which bids wait; `FifoQueue` is the plainest."""

    def __len__(self) -> int: ...
    def arrive(self) -> int: ...
    def push(self, entry: Entry[Ask[T]]) -> None: ...
    @property
    def head(self) -> Entry[Ask[T]] | None: ...
    @property
    def last(self) -> Entry[Ask[T]] | None: ...
    def remove(self, entry: Entry[Ask[T]]) -> bool: ...
    @property
    def over_limit(self) -> bool: ...
    def take(self, entry: Entry[Ask[T]]) -> bool: ...
    def settle(self, entry: Entry[Any], prompt_tokens: int, output_tokens: int) -> None: ...
