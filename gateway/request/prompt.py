"""One prompt of a request, from the queue to the last token of its answers."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

from gateway.policy.bid import Bid
from gateway.policy.control.plan import Plan
from gateway.policy.estimate import FinishedBy
from gateway.policy.prefix import PrefixKey
from gateway.policy.retry import Budget, Next, after_decode_failure, after_expiry, after_prefill_failure
from gateway.policy.routing import Path
from gateway.request.answering import Answering
from gateway.request.errors import Reason
from gateway.request.failures import LegFailure
from gateway.request.holds import ReservationHold, TicketHold
from gateway.request.job import Job
from gateway.request.legs import Leg, Mode, answer_limit, precedence_of
from gateway.request.merge import Merge, Origin
from gateway.request.moves import Moves
from gateway.request.phase import Phase
from gateway.request.prefills import Prefills
from gateway.request.standing import Growing
from proto.fault import FaultKind
from proto.precedence import Precedence
from proto.work import FinishReason

_ENDINGS = {FinishReason.STOP: FinishedBy.STOP, FinishReason.LENGTH: FinishedBy.LENGTH}


class PromptRun:
    def __init__(self, job: Job, prompt: int, plan: Plan) -> None:
        intent = job.intent
        self._plan = plan
        self._job = job
        self._prompt = prompt
        self._tokens = intent.prompts[prompt]
        self._origin = Origin()
        self._window = job.cluster.window  # as promised: a larger worker that joins later changes nothing
        self._limit = answer_limit(intent, prompt, self._window)
        self.merges = [
            Merge(prompt * intent.n + answer, self._limit, intent.sampling.logprobs is not None, self._origin)
            for answer in range(intent.n)
        ]
        self._prefix = PrefixKey(self._tokens, intent.cache_salt)
        self._budget = Budget()
        self._avoid: set[str] = set()  # prefill workers whose KV did not arrive
        self._prefills = Prefills(job, prompt, self.merges[0], self._prefix, self._avoid)
        self._moves = Moves(job, self.merges[0], self._prefix)
        self._legs = 0
        self._guest = False  # of a worker that computes prompts for others
        self._answering: Answering | None = None

    def queue(self) -> Bid:
        """What it asks for a place with; to be called once."""
        job, intent, plan = self._job, self._job.intent, self._plan
        bid = Bid(
            intent.request_id,
            plan.need,
            self._prefix,
            job.desk.arrive(),
            tenant=intent.tenant,
            priority=intent.priority,
            plan=plan,
        )
        job.desk.controller.open(bid)
        self._moves.queued(bid)
        job.enter(self._prompt, Phase.QUEUED)
        return bid

    async def run(self, bid: Bid, place: ReservationHold) -> None:
        """From its place on. Returns when every answer has ended; raises RequestError. Holds nothing afterwards."""
        job = self._job
        cut_by = FinishedBy.FAILED
        try:
            await self._hold(place, bid)
            while not self._complete:
                if luggage := await self._moves.luggage():
                    await self._go_on(*luggage, bid)
                else:
                    await self._hold(await self._place(bid), bid)
        except asyncio.CancelledError:
            cut_by = FinishedBy.CLIENT_LEFT
            raise
        finally:
            self._moves.close()
            self._account(bid, cut_by)
        job.leave(self._prompt)

    async def _place(self, bid: Bid) -> ReservationHold:
        """Once more in line. An answer that has begun asks for what it still can become."""
        desk = self._job.desk
        if not self.merges[0].tokens:
            return await desk.reserve(bid, self._job.intent.wait_until_s)
        begun = self._moves.begun(bid)
        place = await desk.reserve(begun)
        bid.asks = begun.asks
        return place

    async def _hold(self, place: ReservationHold, bid: Bid) -> None:
        with place as hold:
            self._reserved(hold)
            self._say_path(hold.placement.path, hold.placement.reason)
            await self._on_reservation(hold, bid)

    async def _go_on(self, place: ReservationHold, ticket: TicketHold | None, bid: Bid) -> None:
        """The answer has left the worker that it ran on; its path stays the one that it came by."""
        with place as hold, ticket or nullcontext():
            self._reserved(hold)
            await self._on_reservation(hold, bid, ticket)
        self._moves.not_arrived()  # what has not by now goes on elsewhere, if at all

    @property
    def came(self) -> tuple[int, int]:
        """Tokens of the prompt and of its answers that were of use to somebody."""
        answers = sum(len(merge.tokens) for merge in self.merges)
        return (len(self._tokens) if answers else 0), answers

    def _account(self, bid: Bid, cut_by: FinishedBy) -> None:
        """Tells the policy how long the answers became, those that were cut with what had come of them."""
        job = self._job
        for merge in self.merges:
            tokens = len(merge.tokens)
            job.record.longest_tokens = max(job.record.longest_tokens, tokens)
            ended = _ENDINGS.get(merge.finish) if merge.finish else FinishedBy.STOP if merge.ended else None
            job.desk.controller.answered(bid, tokens, ended or cut_by)

    def stop(self, answer: int) -> None:
        """The text layer is done with one answer."""
        self.merges[answer].stop()
        if self._complete and not self._prefills.enough.done():
            self._prefills.enough.set_result(None)
        if self._answering is not None:
            self._answering.stop(answer)

    def growing(self) -> Iterator[Growing]:
        """Those of its answers that a decode worker produces now."""
        answering = self._answering
        if answering is None:
            return
        ways, leaving = self._moves.ways(answering), self._moves.leaving
        for answer, merge in enumerate(self.merges):
            if merge.tokens and not merge.ended:
                yield Growing(
                    name=f"{self._job.intent.request_id}-{self._prompt}-{answer}",
                    worker_id=answering.worker.worker_id,
                    klass=self._plan.klass.name,
                    prompt_tokens=len(self._tokens),
                    generated_tokens=len(merge.tokens),
                    features=self._plan.features,
                    estimate=self._plan.estimate,
                    cap=partial(self._cap, answer),
                    move=lambda order: self._moves.begin(order, answering),
                    ways=ways,
                    leaving=leaving,
                    been=self._moves.been,
                    left=self._moves.left,
                    guest=self._guest,
                )

    def _cap(self, answer: int) -> None:
        """The policy ends one answer with what it has."""
        piece = self.merges[answer].cap()
        if piece is not None:
            self._job.record.capped += 1
            self._job.push(piece)
            if self._answering is not None:
                self._answering.stop(answer)

    @property
    def _complete(self) -> bool:
        return all(merge.ended for merge in self.merges)

    def _reserved(self, hold: ReservationHold) -> None:
        record = self._job.record
        record.decode_worker = hold.worker.worker_id
        record.reserved_blocks += hold.reservation.blocks
        roles = self._job.desk.roles
        self._guest = roles is not None and hold.worker.worker_id in roles.policy.leaning
        self._job.enter(self._prompt, Phase.RESERVED)

    def _say_path(self, path: Path, reason: str) -> None:
        self._job.record.path = path.value
        self._job.record.path_reason = reason

    def _leg(self, hold: ReservationHold, ticket: TicketHold | None = None) -> Leg:
        self._legs += 1
        precedence = Precedence.ORDINARY
        if hold.trip is not None:
            precedence = precedence_of(read=ticket is not None, begun=bool(self.merges[0].tokens), late=hold.trip.late)
        return Leg(
            intent=self._job.intent,
            prompt=self._prompt,
            work_id=f"{self._job.intent.request_id}-{self._prompt}-{self._legs}",
            window=min(hold.worker.info.max_model_len, self._window),
            carried=tuple(self.merges[0].tokens) if self._job.intent.n == 1 else (),
            precedence=precedence,
        )

    async def _on_reservation(self, hold: ReservationHold, bid: Bid, ticket: TicketHold | None = None) -> None:
        """Attempts under one reservation: KV that did not arrive leaves it good for another try."""
        while not self._complete:
            try:
                await self._attempt(hold, ticket)
                self._budget = Budget()  # an answer that is sent elsewhere has all its retries there
                return
            except LegFailure as failure:
                self._judge_decode(failure, bid)
                if not failure.of_the_way:
                    return
                self._job.enter(self._prompt, Phase.RESERVED)
                ticket = None

    async def _attempt(self, hold: ReservationHold, ticket: TicketHold | None) -> None:
        """From the reservation to the end, or to where the answer goes on elsewhere. LegFailure is a decode leg that failed.

        `ticket`: of an answer that has left another worker."""
        if ticket is not None:
            with ticket:  # KV that did not arrive is not kept while it is computed anew
                if self._dispatchable(ticket):
                    return await self._decode(hold, Mode.CARRY, ticket)
        failed: set[str] = set()
        path = hold.placement.path
        while path is Path.REMOTE:
            try:
                ready = await self._prefills.run(hold, self._leg(hold), failed)
            except LegFailure as failure:
                if failure.phase is not Phase.PREFILLING:
                    raise
                path = self._judge_prefill(failure, hold, failed)
                continue
            if ready is None:
                return
            with ready as prefilled:
                if self._complete:
                    return
                if self._dispatchable(prefilled.held):
                    return await self._decode(hold, prefilled.mode, prefilled.held)
        await self._decode(hold, Mode.LOCAL, None)

    def _dispatchable(self, ticket: TicketHold | None) -> bool:
        """Whether there is lease enough left to hand off; else the prompt is prefilled again (B-31)."""
        assert ticket is not None  # a prefill without one has ended the answer or failed
        job = self._job
        job.enter(self._prompt, Phase.HANDED_OFF)
        if ticket.usable(job.config.routing.lease_margin_s):
            return True
        age_s = ticket.age_s
        job.observer.ticket_expired(job.record, ticket.worker.worker_id, age_s)
        if after_expiry(self._budget) is Next.GIVE_UP:
            message = f"the ticket of {ticket.worker.worker_id} was {age_s:.1f} s old, too old to hand off"
            raise LegFailure(Phase.HANDED_OFF, Reason.HANDOFF_FAILED, message, ticket.worker.worker_id).error()
        self._budget = self._budget.after_expiry()
        job.enter(self._prompt, Phase.RESERVED)
        return False

    async def _decode(self, hold: ReservationHold, mode: Mode, ticket: TicketHold | None) -> None:
        self._job.enter(self._prompt, Phase.DECODING)
        if mode is Mode.LOCAL and hold.trip is not None:
            hold.trip.computing(hold.worker.worker_id)
        leg = self._leg(hold, ticket)
        self._answering = Answering(self._job, self.merges, hold, ticket, self._prefix, self._moves)
        try:
            with self._job.desk.overruns.watching(self):
                await self._answering.run(leg, mode)
        finally:
            self._answering = None

    def _judge_prefill(self, failure: LegFailure, hold: ReservationHold, failed: set[str]) -> Path:
        """The one retry of a failed prefill, by policy; raises when there is none."""
        if failure.worker_id:
            failed.add(failure.worker_id)
        if failure.fault is not None and failure.fault.kind is FaultKind.HANDOFF_MISSING:
            self._job.observer.handoff_missing(self._job.record, failure.worker_id)
        fleet = self._job.cluster.fleet(self._prefix)
        another = any(one.worker_id not in failed for one in fleet.partners(hold.worker.worker_id))
        policy = self._job.config.routing.on_prefill_failure
        following = after_prefill_failure(policy, self._budget, failure.retryable, another)
        if following is Next.GIVE_UP:
            raise failure.error()
        self._budget = self._budget.after_prefill()
        self._retried(failure)
        self._job.enter(self._prompt, Phase.RESERVED)
        if following is Next.LOCAL:
            self._say_path(Path.LOCAL, "prefill_failed")
            return Path.LOCAL
        return Path.REMOTE

    def _judge_decode(self, failure: LegFailure, bid: Bid) -> None:
        """A decode leg that failed before its first token may be tried once more, from the reservation on."""
        following = after_decode_failure(self._budget, failure.retryable, failure.tokens)
        if following is Next.GIVE_UP:
            raise failure.error()
        self._budget = self._budget.after_decode()
        if failure.of_the_way or failure.reason is Reason.FIRST_TOKEN_TIMEOUT:
            self._avoid.add(self._job.record.prefill_worker)
        if not failure.of_the_way and not failure.place_lost:
            bid.avoid.add(failure.worker_id)
        self._retried(failure)

    def _retried(self, failure: LegFailure) -> None:
        job = self._job
        job.record.retries += 1
        job.observer.retried(job.record, failure.phase, failure.reason, failure.message)
