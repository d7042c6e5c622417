"""One opened request: started on entering, finished or wiped out on leaving."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType

from gateway.cluster.cluster import Cluster
from gateway.config import GatewayConfig
from gateway.policy.bid import Bid
from gateway.policy.control.controller import Controller
from gateway.policy.control.plan import Plan
from gateway.policy.control.terms import Terms
from gateway.policy.fairness.budget import Outcome
from gateway.policy.fairness.limits import Limited, Pass
from gateway.request.answers import Answers
from gateway.request.desk import Desk
from gateway.request.errors import REJECTIONS, STATUS, Reason, RequestError
from gateway.request.holds import ReservationHold
from gateway.request.intent import Intent
from gateway.request.job import Job
from gateway.request.legs import planned
from gateway.request.observer import Observer
from gateway.request.phase import TRANSITIONS, Phase
from gateway.request.prompt import PromptRun
from gateway.request.record import Record
from gateway.request.refusals import limited

log = logging.getLogger(__name__)

#: How long an answer that is complete may take to wind up before its run is cancelled (a retry may be under way).
_WIND_UP_S = 0.05


@dataclass(frozen=True, slots=True)
class Shared:
    """What all requests of one gateway have in common. `objection` says why one is refused at the door, `cut` why all that run
    are being ended, if they are."""

    cluster: Cluster
    config: GatewayConfig
    observer: Observer
    clock: Callable[[], float]
    desk: Desk
    objection: Callable[[Intent], RequestError | None]
    cut: Callable[[], RequestError | None]
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def controller(self) -> Controller:
        return self.desk.controller


class RequestContext:
    """One opened request. The work runs in a task of its own, so that leaving never waits for a worker."""

    def __init__(self, shared: Shared, intent: Intent, record: Record) -> None:
        self._shared = shared
        self._answers = Answers(record, intent.choices, self._stop, self._complete)
        self._job = Job(
            intent=intent,
            record=record,
            answers=self._answers,
            cluster=shared.cluster,
            desk=shared.desk,
            config=shared.config,
            observer=shared.observer,
            clock=shared.clock,
        )
        self._runs: list[PromptRun] = []
        self._plans: list[Plan] = []
        self._pass: Pass | None = None
        self._terms: Terms = shared.controller.terms
        self._task: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Answers:
        self._terms = self._shared.controller.terms_of(self._job.intent.request_id)
        self._job.record.policy = self._terms.version
        if error := self._shared.objection(self._job.intent) or self._at_the_door():
            self._fail(error)
            self._close()
            raise error
        self._shared.cluster.requests.add(self._job.record)
        self._job.move(Phase.QUEUED)
        self._runs = [PromptRun(self._job, prompt, plan) for prompt, plan in enumerate(self._plans)]
        self._task = asyncio.create_task(self._run(), name=f"request-{self._job.intent.request_id}")
        self._shared.tasks.add(self._task)
        self._task.add_done_callback(self._finished)
        return self._answers

    def _at_the_door(self) -> RequestError | None:
        """What the policy makes of the request, and whether its tenant's limits let it in."""
        job, controller = self._job, self._shared.controller
        window, kv_tokens = job.cluster.window, job.cluster.kv_tokens
        self._plans = [
            controller.plan(planned(job.intent, prompt, window, kv_tokens), self._terms)
            for prompt in range(len(job.intent.prompts))
        ]
        job.record.klass = self._plans[0].klass.name
        job.record.estimated_tokens = sum(plan.output_tokens for plan in self._plans)
        entered = controller.enter(job.intent.tenant, self._plans)
        if isinstance(entered, Limited):
            return limited(entered)
        self._pass = entered
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        if task is None:
            return
        try:
            if self._answers.complete and not task.done():
                await asyncio.wait({task}, timeout=_WIND_UP_S)
        finally:
            task.cancel()
        await self._closed.wait()

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(self._shared.config.deadlines.total_s):
                await self._run_prompts()
            self._job.move(Phase.DONE)
        except RequestError as error:
            self._fail(error)
        except TimeoutError:
            limit_s = self._shared.config.deadlines.total_s
            self._fail(RequestError(Reason.REQUEST_TIMEOUT, f"the request took longer than {limit_s:g} s"))
        except asyncio.CancelledError:
            self._cancelled()
        except Exception:
            log.exception("request %s failed by a defect", self._job.intent.request_id)
            self._fail(RequestError(Reason.INTERNAL, "internal error; the gateway's log has the details"))

    def _finished(self, task: asyncio.Task[None]) -> None:
        """A callback rather than a `finally`: a task that is cancelled before its first step has none."""
        self._shared.tasks.discard(task)
        self._shared.cluster.requests.discard(self._job.record)
        if not self._job.record.phase.final:
            self._cancelled()
        self._close()

    async def _run_prompts(self) -> None:
        """All prompts get their places before anything is computed for one of them, so that none is refused later."""
        desk, runs = self._shared.desk, self._runs
        bids = [run.queue() for run in runs]
        bid = desk.joined(bids)
        try:
            holds = await desk.reserve_all(bid, self._job.intent.wait_until_s)
            if len(runs) == 1:
                await runs[0].run(bid, holds[0])
            else:
                await self._run_together(bids, holds)
        finally:
            came = [run.came for run in runs]
            desk.settle(bid, sum(prompt for prompt, _ in came), sum(answers for _, answers in came))
            # One that was tried again stood in line by itself; what came of it is paid for above.
            for part in bid.parts:
                desk.settle(part, 0, 0)

    async def _run_together(self, bids: list[Bid], holds: list[ReservationHold]) -> None:
        try:
            with ExitStack() as places:
                for hold in holds:  # a task that is cancelled before its first step never enters its own
                    places.enter_context(hold)
                async with asyncio.TaskGroup() as tasks:
                    for run, bid, hold in zip(self._runs, bids, holds, strict=True):
                        tasks.create_task(run.run(bid, hold))
        except* RequestError as errors:
            raise _first(errors) from None

    def _stop(self, choice: int) -> None:
        prompt, answer = divmod(choice, self._job.intent.n)
        self._runs[prompt].stop(answer)

    def _complete(self) -> None:
        """Before the client is told: it may ask again at once, and what winds up here must not count against it."""
        if self._pass is not None:
            self._shared.controller.complete(self._pass)

    def _cancelled(self) -> None:
        """The client had all it wanted while a retry was still under way, the gateway ends, or the client went away."""
        if self._answers.complete:
            self._job.move(Phase.DONE)
            return
        if error := self._shared.cut():
            self._fail(error)
            return
        record = self._job.record
        record.reason, record.failed_phase = Reason.CLIENT_GONE, record.phase
        self._job.move(Phase.CANCELLED)

    def _fail(self, error: RequestError) -> None:
        record = self._job.record
        record.reason, record.failed_phase = error.reason, record.phase
        error.policy = record.policy
        refused = error.reason in REJECTIONS and record.completion_tokens == 0
        if refused and Phase.REJECTED in TRANSITIONS[record.phase]:
            self._job.move(Phase.REJECTED)
            self._shared.controller.refused(error.reason.value)
            self._shared.observer.refused(record, error)
        else:
            self._job.move(Phase.FAILED)
        self._answers.end(error)

    def _close(self) -> None:
        self._answers.end()
        try:
            self._account()
            self._shared.observer.ended(self._job.record)
        finally:
            self._closed.set()

    def _account(self) -> None:
        """Ends what the policy counts of the request. What was wrong with it as such is nobody's missed promise."""
        record, controller = self._job.record, self._shared.controller
        if self._pass is not None:
            controller.leave(self._pass, record.prompt_tokens + record.completion_tokens)
        if not self._plans or (record.reason is not None and STATUS[record.reason] == 400):
            return
        first_s, last_s = record.first_token_s, record.last_token_s
        # Of several prompts the times are those of the slowest and the tokens of all: they say nothing of the pace.
        if record.phase is Phase.DONE and len(self._plans) == 1 and first_s is not None and last_s is not None:
            computed = record.prompt_tokens - record.cached_tokens
            controller.pace.seen(computed, record.prefill_compute_s, record.longest_tokens - 1, last_s - first_s)
        e2e_s = (record.ended_s or self._shared.clock()) - record.started_s
        klass = self._plans[0].klass
        controller.closed(klass, _outcome(record), e2e_s, record.prompt_tokens, record.longest_tokens)


def _outcome(record: Record) -> Outcome:
    if record.reason is Reason.REQUEST_TIMEOUT:
        return Outcome.TIMED_OUT
    known = {Phase.DONE: Outcome.COMPLETED, Phase.REJECTED: Outcome.REJECTED, Phase.CANCELLED: Outcome.ABANDONED}
    return known.get(record.phase, Outcome.FAILED)


def _first(errors: ExceptionGroup[RequestError]) -> RequestError:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
