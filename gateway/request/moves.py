"""The moves of one prompt's answer: whether it may go, what it asks for elsewhere, and what became of it."""

from dataclasses import replace

from gateway.cluster.worker import Worker
from gateway.policy.admission.move import By
from gateway.policy.bid import Bid
from gateway.policy.control.decisions import Look
from gateway.policy.control.going_on import going_on, newest
from gateway.policy.prefix import PrefixKey
from gateway.policy.routing import Path, Placement
from gateway.request.answering import Answering
from gateway.request.holds import ReservationHold, TicketHold
from gateway.request.job import Job
from gateway.request.legs import carriable
from gateway.request.merge import Merge
from gateway.request.moving import Luggage, Move, Order, Outcome, Step, Why
from gateway.request.observer import Moved
from gateway.request.roles import MOVED
from gateway.request.standing import Word, to_empty, word

#: So many moves of one answer may come to nothing after its worker was told: it is not tried for ever. A worker that is to be
#: emptied may try again.
_TRIES = 3
#: How long a place is kept for an answer that was asked to leave: one token or two, if its worker does its work.
LATE_S = 5.0


class Moves:
    """Implements answering.Watch. One answer to the prompt, for several share KV; one move at a time."""

    def __init__(self, job: Job, merge: Merge, prefix: PrefixKey) -> None:
        self._job = job
        self._merge = merge
        self._prefix = prefix
        self._move: Move | None = None
        self._failed = 0
        self._been: frozenset[str] = frozenset()  # where it has left for want of room
        self._source: Worker | None = None
        self._answering: Answering | None = None
        self._late: Order | None = None  # by which it may still leave, though its place has been given up
        self._over = False
        self._stays: Word | None = None  # what its worker had said last when it kept it
        self._bid: Bid | None = None

    def queued(self, bid: Bid) -> None:
        """What the prompt asks for a place with."""
        self._bid = bid

    def ways(self, answering: Answering) -> frozenset[By]:
        """How the answer could go on elsewhere now; none where that was tried in vain, or could change it."""
        worker = answering.worker
        if self.under_way or not answering.begun or not carriable(self._job.intent):
            return frozenset()
        if self._stays == word(worker) or (self._failed >= _TRIES and not to_empty(worker)):
            return frozenset()
        reads = {By.TRANSFER} if worker.info.hands_over else set[By]()
        return frozenset({By.RECOMPUTE, *reads})

    @property
    def been(self) -> frozenset[str]:
        """Workers that it has left for want of room, and does not go back to for that."""
        return self._been

    @property
    def left(self) -> str:
        """The worker that holds its KV, while another one reads it."""
        going = self._move is not None and self._move.step is Step.GOING and self._move.order.by is By.TRANSFER
        return self._source.worker_id if going and self._source is not None else ""

    @property
    def under_way(self) -> bool:
        return self._move is not None and not self._move.over

    @property
    def leaving(self) -> bool:
        """It is to leave the worker that it still runs on, or has just run on; one that is arriving is not leaving."""
        return self.under_way and self._move is not None and self._move.step is not Step.GOING

    def begin(self, order: Order, answering: Answering) -> None:
        """The policy has chosen this answer."""
        if order.by not in self.ways(answering):
            return
        self._source = answering.worker
        self._move = self._moving(order, answering)

    def _moving(self, order: Order, answering: Answering) -> Move:
        self._answering = answering
        return Move(order, answering, lambda: self._ask(order), LATE_S, self._told)

    async def luggage(self) -> Luggage | None:
        """What the answer goes on with elsewhere, if it has left. Its KV waits for one worker's word and not for its turn in line: the
        worker that it has left may be the one that gets room."""
        if self._move is None:
            return None
        await self._move.settled()
        return self._move.take()

    def close(self) -> None:
        """The answer is over. Whatever a move still holds is given back."""
        self._over = True
        if self._move is not None:
            self._move.close()

    def not_arrived(self) -> None:
        """Its time at the other worker is over. One that has arrived there may be leaving again."""
        if self._move is not None and self._move.step is Step.GOING:
            self._move.close()

    def began(self, pulled: bool) -> None:
        if self._move is not None:
            self._move.arrived(pulled)

    def handed(self, ticket: TicketHold) -> None:
        if self._move is None or self._over:
            ticket.release()
            return
        if self._move.over and self._late is not None:
            self._move = self._again(self._late)
        self._move.handed(ticket)

    def _again(self, order: Order) -> Move:
        """It was handed over too late. If there is a place where it was to go once more, nothing need be computed."""
        assert self._source is not None
        assert self._answering is not None
        self._failed -= 1
        self._job.desk.overruns.resumed(order, self._source.worker_id)
        return self._moving(order, self._answering)

    def stays(self) -> None:
        """Its engine leaves it where it is."""
        if self._move is not None:
            self._move.stays()

    def begun(self, bid: Bid) -> Bid:
        """What an answer that has begun stands in line with: in its old place, which has had its turn, and under no promise and
        no limit on waiting that was made for a first token; `deadlines.queue_s` is left."""
        assert bid.plan is not None
        plan = going_on(bid.plan, len(self._merge.tokens))
        plan = replace(plan, klass=replace(plan.klass, ttft_s=None, queue_s=None), kin=0)
        return replace(bid, need=plan.need, prefix=self._so_far, plan=plan)

    @property
    def _so_far(self) -> PrefixKey:
        return PrefixKey((*self._prefix.tokens, *self._merge.tokens), self._prefix.salt)

    async def _ask(self, order: Order) -> ReservationHold | None:
        """The answer so far is part of the prompt there. A place whose KV does not arrive is good for computing it."""
        assert self._bid is not None
        assert self._bid.plan is not None
        job, intent = self._job, self._job.intent
        plan = going_on(newest(self._bid.plan, job.desk.controller.lengths), len(self._merge.tokens))
        bid = Bid(
            intent.request_id,
            plan.need,
            self._so_far,
            job.desk.arrive(),
            tenant=intent.tenant,
            priority=intent.priority,
            plan=plan,
            decision=self._bid.decision,
            moves=True,
            emergency=order.why is Why.OVERRUN,
        )
        return await job.desk.ask_at(bid, Placement(order.worker_id, Path.LOCAL, MOVED))

    def _told(self, order: Order, outcome: Outcome) -> None:
        job = self._job
        assert self._source is not None
        if outcome is Outcome.LATE:
            self._late = order
        if outcome in (Outcome.MOVED, Outcome.RECOMPUTED):
            job.record.moves += 1
            self._late = None
            if order.why is not Why.DRAIN:
                self._been |= {self._source.worker_id}
        elif outcome in (Outcome.KEPT, Outcome.LATE, Outcome.LOST):
            self._failed += 1
            self._stays = word(self._source)
        moved = Moved(
            request_id=job.intent.request_id,
            why=order.why.value,
            outcome=outcome.value,
            by=order.by.value,
            source=self._source.worker_id,
            target=order.worker_id,
            tokens=len(self._merge.tokens),
            numbers=order.numbers,
        )
        job.desk.overruns.moved(moved)
        if self._bid is not None and self._bid.decision is not None:
            why = f"{order.why}, by {order.by}: {outcome}"
            self._bid.decision.look(Look(job.clock(), "move", order.worker_id, why, numbers=order.numbers))
        job.observer.moved(job.record, moved)
