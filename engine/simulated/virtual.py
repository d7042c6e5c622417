"""The simulated engine in virtual time: the same scheduler, without tokens and without waiting.

Decode steps between two events are taken in one stride. What can end a stride is known when it begins: the next
answer that ends, the step for which blocks may not suffice, or something from outside, which cuts it short.
"""

from collections.abc import Callable
from dataclasses import replace

from engine.simulated.anchor import Anchor
from engine.simulated.cost import StepCost
from engine.simulated.ends import Ends, Live
from engine.simulated.host_memory import HostMemory
from engine.simulated.job import Event, Job, Kind
from engine.simulated.limits import Limits
from engine.simulated.pace import Pace
from engine.simulated.scheduler import Scheduler
from engine.simulated.sequence import Sequence, Status, SyntheticKeys
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
        self._live: dict[str, Live] = {}
        self._held: dict[str, Sequence] = {}
        self._step: Step | None = None
        self._step_start_s = 0.0
        self._step_end_s = 0.0
        self._more = 0  # steps that follow the one in flight without anything new
        self._anchor: Anchor | None = None
        self._ends = Ends(self.scheduler, self._live)
        self._pace = Pace(cost) if gaps else None
        self._news: list[Event] = []
        self._private = 0
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
        self._private += 1
        sequence = Sequence(
            job.request_id,
            job.prompt_tokens,
            SyntheticKeys(self._private, job.shared),
            priority=job.priority,
            external=job.external,
        )
        limit = min(job.prompt_tokens + job.output_tokens, self.scheduler.limits.max_model_len)
        self._live[job.request_id] = Live(job, sequence, limit)
        self.scheduler.add(sequence)
        self._dirty = True

    def loaded(self, request_id: str, at_s: float) -> None:
        """The tokens of a LOADING request have arrived; what was aborted meanwhile frees its blocks now."""
        self._cut(at_s)
        live = self._live.get(request_id)
        if live is not None:
            self.scheduler.loaded(live.sequence)
        elif (sequence := self._held.pop(request_id, None)) is not None:
            self.scheduler.free_blocks(sequence)
        self._dirty = True

    def abort(self, request_id: str, at_s: float) -> None:
        """Ends a request without an event; unknown ids are no-ops."""
        self._cut(at_s)
        live = self._live.pop(request_id, None)
        if live is None:
            return
        if self._pace is not None:
            self._pace.forget(request_id)
        if live.sequence.status is Status.LOADING and not live.sequence.loaded:
            self.scheduler.detach(live.sequence)
            self._held[request_id] = live.sequence
        else:
            self.scheduler.end(live.sequence)
        self._dirty = True

    def hand_over(self, request_id: str, at_s: float) -> bool:
        """A request that decodes ends at its next token, or the one after that where a KV block ends, and is HELD; False: it
        has not begun, or ends by itself by then, and goes on as it was."""
        self._cut(at_s)
        live = self._live.get(request_id)
        if live is None or not self.decodes(request_id):
            return False
        limit = live.sequence.total + 1
        if (limit - 1) % self.scheduler.limits.block_size == 0:
            limit += 1
        if limit >= live.limit:
            return False
        live.limit, live.job = limit, replace(live.job, hold=True)
        self._ends.sooner(live.sequence)
        return True

    def release(self, request_id: str, at_s: float) -> None:
        """Frees what a HELD request keeps."""
        self._cut(at_s)
        sequence = self._held.pop(request_id, None)
        if sequence is not None:
            self.scheduler.free_blocks(sequence)
            self._dirty = True

    def limit_step(self, tokens: int, chunk_tokens: int, at_s: float) -> None:
        """From the next step on, so many tokens a step, and so many of one prompt."""
        self._cut(at_s)
        self.scheduler.limits = replace(
            self.scheduler.limits, max_batched_tokens=tokens, long_prefill_threshold=chunk_tokens
        )

    def loading(self, request_id: str) -> bool:
        """Whether tokens of this request are under way."""
        live = self._live.get(request_id)
        return live is not None and live.sequence.status is Status.LOADING and not live.sequence.loaded

    def settle(self, at_s: float) -> None:
        """Takes every step that ends before `at_s`, so that counters and blocks can be read as of then."""
        self._cut(at_s)

    def total_tokens(self, request_id: str) -> int:
        """Prompt and answer so far of a live request, as of the last step taken; 0 when it is not here."""
        live = self._live.get(request_id)
        return 0 if live is None else live.sequence.total

    def decodes(self, request_id: str) -> bool:
        """Whether it is in the batch and has begun to answer: one that was preempted waits until it is computed anew."""
        live = self._live.get(request_id)
        return live is not None and live.sequence.status is Status.RUNNING and live.sequence.answering

    # time

    @property
    def due_s(self) -> float | None:
        """When there will be news; None while there is nothing to do."""
        if self._news:
            return self.now_s
        self._plan()
        if self._news:
            return self.now_s
        if self._step is None:
            return None
        if self._more and self._anchor is not None:
            return self._anchor.end_s(self._cost, self._anchor.steps + 1 + self._more)
        return self._step_end_s

    def advance(self) -> list[Event]:
        """Goes to `due_s` and returns what happened there."""
        due_s = self.due_s
        if not self._news and self._step is not None and due_s is not None:
            self._finish_step()
            if self._more:
                self._stride(self._more)
            self.now_s = due_s
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
            steps = self._anchor.steps_before(self._cost, at_s, self._more)
            self._finish_step()
            self._stride(steps - 1)
            self._begin(self.scheduler.schedule())
        self._more = 0

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
            self._dirty = bool(step.preempted)
            self._fail_stuck()

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
            self._step_end_s = self.now_s + alone_s * slower
            return
        anchor = self._anchor
        if anchor is None or anchor.version != version:
            anchor = self._anchor = Anchor(self.now_s, step.decodes, step.context_tokens, version)
        self._step_end_s = anchor.end_s(self._cost, anchor.steps + 1)
        # After a preemption the next step may admit, and whoever is not in the cohort may do anything.
        if self._closed_form and not step.preempted and not step.scheduled:
            self._more = self.scheduler.repeatable(self._ends.next() - self.scheduler.cohort.clock)

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
            self._pace.step(step, took_s if self._anchor is None else None)
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
            ended += self._ends.reached()
        self._end_all(ended)

    def _sampled(self, sequence: Sequence) -> bool:
        """Notes one more token; whether it was the last."""
        if not sequence.answering:
            sequence.answering = True
            self._news.append(Event(Kind.FIRST_TOKEN, sequence.request_id, self.now_s))
        if self._pace is not None:
            self._pace.token(sequence.request_id, self.now_s)
        left = self._live[sequence.request_id].limit - sequence.total
        if left > 0:
            self._ends.add(sequence, left)
        return left <= 0

    def _end_all(self, ended: list[Sequence]) -> None:
        """In order of admission, which decides whose blocks are evicted first."""
        if len(ended) > 1:
            ended.sort(key=self.scheduler.running.index)
        for sequence in ended:
            self._ended(sequence)

    def _ended(self, sequence: Sequence) -> None:
        live = self._live.pop(sequence.request_id)
        gaps = None if self._pace is None else self._pace.end(sequence.request_id, self.now_s)
        if live.job.hold:
            self.scheduler.detach(sequence)
            self._held[sequence.request_id] = sequence
            held, tokens = sequence.held, sequence.total
            self._news.append(Event(Kind.HELD, sequence.request_id, self.now_s, held, tokens=tokens, gaps=gaps))
        else:
            self.scheduler.end(sequence)
            self._news.append(Event(Kind.FINISHED, sequence.request_id, self.now_s, gaps=gaps))

    def _stride(self, steps: int) -> None:
        """Many decode steps at once; only the last can end answers."""
        anchor = self._anchor
        if steps <= 0 or anchor is None:
            return
        start_s = self.now_s
        self.scheduler.repeat(steps)
        begun = anchor.steps
        anchor.steps += steps
        self.steps += steps
        self.generated_tokens += steps * anchor.batch
        self.now_s = anchor.end_s(self._cost, anchor.steps)
        self.busy_s += self.now_s - start_s
        context_tokens = anchor.context_tokens + anchor.batch * begun
        self.totals.add_run(anchor.batch, context_tokens, steps, self.now_s - start_s)
        if self._pace is not None:
            self._pace.run(anchor.batch, context_tokens, steps)
        if self.account is not None:
            self.account.add_run(self._cost, anchor.batch, context_tokens, steps, self.now_s - start_s)
        self._end_all(self._ends.reached())

    def _fail_stuck(self) -> None:
        """A sequence that outgrew the whole KV space ends, as in real time."""
        scheduler = self.scheduler
        if scheduler.running or scheduler.holding or not scheduler.waiting:
            return
        sequence = scheduler.waiting.first()
        if -(-sequence.total // scheduler.limits.block_size) > scheduler.pool.total:
            del self._live[sequence.request_id]
            if self._pace is not None:
                self._pace.forget(sequence.request_id)
            scheduler.end(sequence)
            self._news.append(Event(Kind.FAILED, sequence.request_id, self.now_s, tokens=sequence.total))
            self._dirty = True
