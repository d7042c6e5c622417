"""One request on its way through the simulated fleet."""

from array import array
from dataclasses import dataclass, field

from decode_pool.ledger import Hold
from decode_pool.pulls import Pull
from engine.simulated.gaps import Gaps, together
from gateway.policy.admission import Entry
from gateway.policy.bid import Ask, Bid
from gateway.policy.fairness.limits import Pass
from gateway.policy.retry import Budget
from gateway.policy.routing import Path
from loadgen.result import SIMULATED, Ending, Result
from loadgen.schedule import Planned
from loadgen.simulate.worker import SimWorker


@dataclass(slots=True)
class Leg:
    """One visit to one engine. Times are None until they happen."""

    name: str
    worker: SimWorker
    epoch: int
    sent_s: float
    prefill: bool
    tokens: int
    local: bool = False
    submitted: bool = False
    foreign: bool = False  # counted among the work without reservations of its worker
    started_s: float | None = None
    loading_s: float | None = None
    first_s: float | None = None
    cached: int = 0


@dataclass(slots=True, eq=False)
class Flight:
    """`lengths` and `limit_tokens` go with the request for KV. `carried` tokens have been given to the client by legs that are over,
    the newest of them at `last_s`; `gaps` are those between them. The four stages add up what legs took.

    `step` changes with every move, so that a timer set for an earlier one knows that it is stale. `been`: decode workers that its
    answer has left.
    """

    planned: Planned
    intended_s: float
    bid: Bid
    output_tokens: int
    lengths: tuple[int, ...] = ()
    limit_tokens: int = 0
    entered: Pass | None = None
    step: int = 0
    entry: "Entry[Ask[Flight]] | None" = None
    asked_s: float = 0.0
    path: Path = Path.LOCAL
    decode: SimWorker | None = None
    prefill_id: str = ""  # where the way was decided together with the decode worker
    reservation: str = ""
    hold: Hold | None = None
    leg: Leg | None = None
    held: Leg | None = None  # a prefill leg whose KV waits to be read
    pull: Pull | None = None
    legs: int = 0
    budget: Budget = field(default_factory=Budget)
    avoid: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    carried: int = 0
    first_s: float | None = None
    last_s: float = 0.0
    gaps: Gaps | None = None
    queue_s: float = 0.0
    line_s: float = 0.0  # of those, in the gateway's line; the rest is that of a prefill engine
    prefill_s: float = 0.0
    transfer_s: float = 0.0
    decode_queue_s: float = 0.0
    cached_tokens: int = 0
    preemptions: int = 0
    been: frozenset[str] = frozenset()
    open: bool = True

    @property
    def prompt_tokens(self) -> int:
        """What an engine must know before it can go on."""
        return self.planned.demand.prompt_tokens + self.carried

    def begins(self, now_s: float) -> None:
        """A leg has given its first token to the client."""
        if self.first_s is None:
            self.first_s = now_s
        else:
            self.gaps = (self.gaps or Gaps()).with_pause(now_s - self.last_s)
        self.last_s = now_s

    def ends(self, now_s: float, gaps: Gaps | None) -> None:
        """A leg has given its last token. `gaps`: between those that it gave, where the engine keeps them."""
        self.last_s = now_s
        if gaps is not None:
            self.gaps = gaps if self.gaps is None else together((self.gaps, gaps))

    def result(self, end_s: float, ending: Ending, reason: str, status: int, given: int) -> Result:
        """`given` is the number of tokens that the client got."""
        demand, first = self.planned.demand, self.first_s
        if first is None or not given:
            times, counts = array("d"), array("L")
        else:
            times = array("d", (first, end_s) if given > 1 else (first,))
            counts = array("L", (1, given - 1) if given > 1 else (1,))
        waited = self.queue_s + self.prefill_s + self.transfer_s + self.decode_queue_s
        served = self.decode is not None
        return Result(
            index=self.planned.index,
            intended_s=self.intended_s,
            sent_s=self.intended_s,
            end_s=end_s,
            ending=ending,
            reason=reason,
            status=status,
            first_s=first,
            planned_prompt_tokens=demand.prompt_tokens,
            planned_output_tokens=demand.output_tokens,
            prompt_tokens=demand.prompt_tokens if first is not None else 0,
            cached_tokens=self.cached_tokens,
            output_tokens=given,
            chunk_s=times,
            chunk_tokens=counts,
            tokens_from=SIMULATED,
            gaps=self._gaps(given) if ending is Ending.COMPLETED else None,
            finish="length" if ending is Ending.COMPLETED else "",
            tenant=demand.tenant,
            klass=demand.klass,
            session=demand.session,
            turn=demand.turn,
            stages_s=(
                ("queue", self.queue_s),
                ("prefill", self.prefill_s),
                ("transfer", self.transfer_s),
                ("decode_queue", self.decode_queue_s),
                ("decode", max(0.0, end_s - self.intended_s - waited)),
            )
            if served
            else (),
            line_s=self.line_s,
            worker=self.decode.name if self.decode is not None else "",
            path=self.path.value if served else "",
        )

    def _gaps(self, given: int) -> Gaps | None:
        """None where they are not kept."""
        gaps = Gaps() if self.gaps is None else self.gaps
        return gaps if len(gaps) == given - 1 else None
