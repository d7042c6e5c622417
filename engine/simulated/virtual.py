"""The simulated engine in virtual time: the same scheduler, without tokens and without waiting.

Decode steps between two events are taken in one stride. What can end a stride is known when it begins: the next
answer that ends, the step for which blocks may not suffice, or something from outside, which cuts it short.
"""

from collections.abc import Callable
from dataclasses import replace

from engine.simulated.anchor import Anchor
from engine.simulated.cost import StepCost
from engine.simulated.host_memory import HostMemory
from engine.simulated.job import Event, Job, Kind
from engine.simulated.jobs import Jobs
from engine.simulated.limits import Limits
from engine.simulated.pace import Pace
from engine.simulated.scheduler import Scheduler
from engine.simulated.sequence import Sequence
from engine.simulated.step import Counters, Step
from engine.simulated.time_account import TimeAccount
from engine.simulated.totals import StepTotals


class VirtualEngine:
    """Driven from outside: the caller always moves whoever is due first.

    `due_s` is when this engine next has news if nothing else happens; `advance` goes there and returns it.
    Everything that comes from outside carries its time, which must not lie before news already given or after
    `due_s`. What arrives at the very end of a step is seen by the next one.
    """

    def __init__(
        self,
        limits: Limits,
        cost: StepCost,
        *,
        account: TimeAccount | None = None,
        gaps: bool = False,
        host: HostMemory | None = None,
        stretch: Callable[[bool], float] | None = None,
        closed_form: bool = True,
        together: bool = True,
    ) -> None:
        """`account` is kept when given; with `gaps` answers that FINISHED say how their tokens came. What LOADING requests
        find in `host` memory the caller brings. `stretch` is of an engine that shares its cores: asked as a step begins, and
        told whether it computes prompts, by what its time is multiplied; it goes step by step. The last two exist for
        tests: every setting of them gives the same events."""
        self.account = account
        self.host = host
        self.totals = StepTotals()
        self.scheduler = Scheduler(limits, together=together, host=host)
        self.now_s = 0.0
        self.steps = 0
        self.busy_s = 0.0
        self.generated_tokens = 0
        self._cost = cost
        self._closed_form = closed_form and stretch is None
        self._stretch = stretch
        self._step: Step | None = None
        self._step_start_s = 0.0
        self._step_end_s = 0.0
        self._more = 0  # steps that follow the one in flight without anything new
        self._run_end_s = 0.0  # when the last of them ends
        self._anchor: Anchor | None = None
        self._pace = Pace(cost, merging=closed_form) if gaps else None
        self._jobs = Jobs(self.scheduler, self._pace)
        self._news: list[Event] = []
        self._dirty = False  # something changed since the scheduler last found nothing to do

    @property
    def computes(self) -> bool:
        """Whether a step is under way."""
        return self._step is not None

    @property
    def counters(self) -> Counters:
        return self.scheduler.counters

    # from outside

    def submit(self, job: Job, at_s: float) -> None:
        self._cut(at_s)
        self._jobs.submit(job)
        self._dirty = True

    def loaded(self, request_id: str, at_s: float) -> None:
        """The tokens of a LOADING request have arrived; what was aborted meanwhile frees its blocks now."""
        self._cut(at_s)
        self._jobs.loaded(request_id)
        self._dirty = True

    def abort(self, request_id: str, at_s: float) -> None:
        """Ends a request without an event; unknown ids are no-ops."""
        self._cut(at_s)
        if self._jobs.abort(request_id):
            self._dirty = True

    def hand_over(self, request_id: str, at_s: float) -> bool:
        """A request that decodes ends at its next token, or the one after that where a KV block ends, and is HELD; False: it
        has not begun, or ends by itself by then, and goes on as it was."""
        self._cut(at_s)
        return self._jobs.hand_over(request_id)

    def release(self, request_id: str, at_s: float) -> None:
        """Frees what a HELD request keeps."""
        self._cut(at_s)
        if self._jobs.release(request_id):
            self._dirty = True

    def limit_step(self, tokens: int, chunk_tokens: int, at_s: float) -> None:
        """From the next step on, so many tokens a step, and so many of one prompt."""
        self._cut(at_s)
        self.scheduler.limits = replace(
            self.scheduler.limits, max_batched_tokens=tokens, long_prefill_threshold=chunk_tokens
        )

    def loading(self, request_id: str) -> bool:
        """Whether tokens of this request are under way."""
        return self._jobs.loading(request_id)

    def settle(self, at_s: float) -> None:
        """Takes every step that ends before `at_s`, so that counters and blocks can be read as of then."""
        self._cut(at_s)

    def total_tokens(self, request_id: str) -> int:
        """Prompt and answer so far of a live request, as of the last step taken; 0 when it is not here."""
        return self._jobs.total_tokens(request_id)

    def decodes(self, request_id: str) -> bool:
        """Whether it is in the batch and has begun to answer: one that was preempted waits until it is computed anew."""
        return self._jobs.decodes(request_id)

    # time

    @property
    def due_s(self) -> float | None:
        """When there will be news; None while there is nothing to do."""
        if self._news:
            return self.now_s
        if self._step is None:
            self._plan()
            if self._news:
                return self.now_s
            if self._step is None:
                return None
        return self._run_end_s

    def advance(self) -> list[Event]:
        """Goes to `due_s` and returns what happened there."""
        due_s = self.due_s
        if not self._news and self._step is not None and due_s is not None:
            if self._more and self._anchor is not None:
                self._finish_run(self._anchor)
            else:
                self._finish_step()
        news, self._news = self._news, []
        return news

    # the inside

    def _cut(self, at_s: float) -> None:
        """Takes every step that ends before `at_s`; the one in flight stays, and what follows it is open again."""
        if self._step is None and self.now_s < at_s:
            self._plan()
        if self._step is None:
            self.now_s = max(self.now_s, at_s)
            return
        if self._more and self._anchor is not None and self._step_end_s < at_s:
            self._pass_by(self._step, self._anchor, self._anchor.steps_before(self._cost, at_s, self._more))
        self._more = 0
        self._run_end_s = self._step_end_s

    def _plan(self) -> None:
        """Schedules the step that begins now, unless one is in flight."""
        if self._step is not None or not self._dirty:
            return
        step = self.scheduler.schedule()
        self._news += [Event(Kind.PREEMPTED, s.request_id, self.now_s) for s in step.preempted]
        if self._pace is not None:
            self._pace.planned(step, self.scheduler.running, self.now_s)
        for sequence in step.loading:
            cached = sequence.keyed * self.scheduler.limits.block_size
            self._news.append(Event(Kind.LOADING, sequence.request_id, self.now_s, sequence.plain, cached))
        for sequence in step.admitted:
            if not sequence.preemptions:
                self._news.append(Event(Kind.STARTED, sequence.request_id, self.now_s, 0, sequence.hit))
        if step.computes:
            self._begin(step)
        else:
            failed = self._jobs.fail_stuck(self.now_s)
            self._news += [failed] if failed else []
            self._dirty = bool(step.preempted or failed)

    def _begin(self, step: Step) -> None:
        """A step is in flight: when does it end, and how many like it will follow?"""
        self._step = step
        self._step_start_s = self.now_s
        self._more = 0
        version = self.scheduler.version
        if self._stretch is not None or step.chunks or not self._all_decoding(step):
            self._anchor = None
            slower = 1.0 if self._stretch is None else self._stretch(bool(step.chunks))
            alone_s = self._cost.step_s(step.decodes, step.context_tokens, step.chunks)
            self._step_end_s = self._run_end_s = self.now_s + alone_s * slower
            return
        anchor = self._anchor
        if anchor is None or anchor.version != version:
            anchor = self._anchor = Anchor(self.now_s, step.decodes, step.context_tokens, version)
        self._step_end_s = self._run_end_s = anchor.end_s(self._cost, anchor.steps + 1)
        # After a preemption the next step may admit, and whoever is not in the cohort may do anything.
        alike = self._closed_form and not step.preempted and not step.scheduled
        if alike and (self._pace is None or not self._pace.waiting):
            self._more = self.scheduler.repeatable(self._jobs.ends.next() - self.scheduler.cohort.clock)
            if self._more:
                self._run_end_s = anchor.end_s(self._cost, anchor.steps + 1 + self._more)

    def _all_decoding(self, step: Step) -> bool:
        everyone = step.steady + len(step.scheduled) == len(self.scheduler.running)
        return everyone and all(sequence.answering for sequence in step.scheduled)

    def _finish_step(self) -> None:
        """The step in flight has ended: everyone in it that has caught up has one token more."""
        step = self._step
        assert step is not None
        self._step = None
        self._dirty = True
        self.now_s = self._step_end_s
        took_s = self._step_end_s - self._step_start_s
        self.busy_s += took_s
        self.steps += 1
        self.totals.add(step, took_s)
        if self._pace is not None:  # now: whoever goes on with a token of this step counts from the next one
            if self._anchor is None:
                self._pace.step(took_s)
            else:
                self._pace.run(step.decodes, step.context_tokens, 1)
        if self.account is not None:
            self.account.add_step(self._cost, step.decodes, step.context_tokens, step.chunks)
        if self._anchor is not None:
            self._anchor.steps += 1
        done = self.scheduler.complete(step)
        if self._pace is not None:
            self._pace.completed(self.now_s)
        self.generated_tokens += len(done)
        ended = [sequence for sequence in done if self._sampled(sequence)]
        if step.steady:
            self.generated_tokens += self.scheduler.cohort.count
            ended += self._jobs.ends.reached()
        self._end_all(ended)

    def _sampled(self, sequence: Sequence) -> bool:
        """Notes one more token; whether it was the last."""
        if not sequence.answering:
            sequence.answering = True
            self._news.append(Event(Kind.FIRST_TOKEN, sequence.request_id, self.now_s))
        return self._jobs.sampled(sequence, self.now_s)

    def _end_all(self, ended: list[Sequence]) -> None:
        """In order of admission, which decides whose blocks are evicted first."""
        if len(ended) > 1:
            ended.sort(key=self.scheduler.running.index)
        self._news += [self._jobs.end(sequence, self.now_s) for sequence in ended]

    def _finish_run(self, anchor: Anchor) -> None:
        """The step in flight and all that follow it; only the last can end answers."""
        self._take(anchor, 1 + self._more)
        self.scheduler.repeat(self._more)
        self._step = None
        self._dirty = True
        self._end_all(self._jobs.ends.reached())

    def _pass_by(self, step: Step, anchor: Anchor, steps: int) -> None:
        """So many of them end, and the next is in flight."""
        self._take(anchor, steps)
        self.scheduler.pass_by(steps)
        step.context_tokens += steps * anchor.batch
        self._step_start_s = self.now_s
        self._step_end_s = anchor.end_s(self._cost, anchor.steps + 1)

    def _take(self, anchor: Anchor, steps: int) -> None:
        """Many decode steps at once, the one in flight the first of them."""
        context_tokens = anchor.context_tokens + anchor.batch * anchor.steps
        anchor.steps += steps
        self.steps += steps
        self.generated_tokens += steps * anchor.batch
        self.now_s = anchor.end_s(self._cost, anchor.steps)
        took_s = self.now_s - self._step_start_s
        self.busy_s += took_s
        self.totals.add_run(anchor.batch, context_tokens, steps, took_s)
        if self._pace is not None:
            self._pace.run(anchor.batch, context_tokens, steps)
        if self.account is not None:
            self.account.add_run(self._cost, anchor.batch, context_tokens, steps, took_s)
