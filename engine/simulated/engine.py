"""The simulated engine in real time: the scheduler's steps, paced by the cost model."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from engine.base import EngineDeadError, EngineFrame, EngineOutput, EngineStats, WorkerIdentity
from engine.config import EngineConfig
from engine.simulated import faults
from engine.simulated.faults import Leg, Phase, Script, read_script
from engine.simulated.generation import Generation, check
from engine.simulated.handoff import Handoff
from engine.simulated.injector import Injector, deltas, midway
from engine.simulated.outbox import Outbox
from engine.simulated.scheduler import Scheduler
from engine.simulated.sequence import Status
from engine.simulated.setup import set_up
from engine.simulated.step import Step
from engine.simulated.totals import StepTotals
from proto.fault import Fault, FaultError, FaultKind
from proto.precedence import let_in
from proto.ticket import Ticket
from proto.work import FinishReason, SequenceDelta, Work
from proto.worker import WarmResult, WorkerInfo

log = logging.getLogger(__name__)

#: How far behind the wall clock the engine may run before it gives up catching up, in seconds.
_MAX_LAG_S = 0.05


class SimulatedEngine:
    """Implements engine.base.Engine."""

    def __init__(self, config: EngineConfig, identity: WorkerIdentity) -> None:
        self._setup = set_up(config, identity)
        self.injector = Injector(read_script(config.faults) if config.faults else Script())
        self._scheduler = Scheduler(self._setup.limits)
        self._handoff = Handoff(self._setup, self._scheduler, self.injector, self._woken, self._fail)
        self._generations: dict[str, Generation] = {}
        self._outbox = Outbox()
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._dead: str | None = None
        self._steps = 0
        self._step_time_s = 0.0
        self._totals = StepTotals()
        self._generated = 0
        self._late: list[EngineOutput] = []  # news that no step produced

    # the protocol

    async def start(self) -> WorkerInfo:
        await self._handoff.start()
        self._loop = asyncio.create_task(self._live(), name="simulated-engine")
        return self._setup.info(self._handoff.address.encode())

    async def stop(self) -> None:
        if self._loop is None:
            return
        loop, self._loop = self._loop, None
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await self._handoff.stop()
        self._die("the engine was stopped")

    def submit(self, work: Work, *, hold: bool = False, pull: Ticket | None = None) -> None:
        self._alive()
        if work.request_id in self._generations:
            raise FaultError(Fault(FaultKind.INTERNAL, f"request {work.request_id} is already running"))
        check(work, self._setup, pull)
        leg = Leg.PULL if pull is not None else Leg.PREFILL if hold else Leg.LOCAL
        struck = self.injector.strike(work.request_id, leg, len(work.tokens))
        if (refusal := struck.find(faults.Refuse)) is not None:
            raise FaultError(Fault(refusal.fault, "scripted: refused"))
        generation = Generation(work, self._setup, struck, hold=hold, pull=pull, now_s=self.injector.now())
        self._generations[work.request_id] = generation
        if (hang := struck.hang(Phase.QUEUE)) is not None:
            self._handoff.spawn(self._queue_later(generation, hang))
        else:
            self._scheduler.add(generation.sequence)
        self._handoff.keep_lease(generation)
        self._wake.set()

    async def abort(self, request_id: str) -> None:
        self._alive()
        generation = self._generations.pop(request_id, None)
        if generation is None:
            return
        generation.aborted = True
        self._outbox.take_back(request_id)
        if generation.sequence.status is Status.LOADING and not generation.sequence.loaded:
            self._scheduler.detach(generation.sequence)  # its blocks are being written: whoever writes frees them
        else:
            self._end(generation)
            self._handoff.decline(generation)
        self._wake.set()

    def hand_over(self, request_id: str) -> None:
        self._alive()
        generation = self._generations.get(request_id)
        if generation is None:
            return
        if generation.may_be_cut:
            generation.handing_over = True
        else:
            self._late.append(EngineOutput(request_id, SequenceDelta((), stays=True)))
            self._wake.set()

    def limit_step(self, tokens: int, chunk_tokens: int) -> None:
        self._alive()
        own = self._setup.limits
        self._scheduler.limits = replace(
            own,
            max_batched_tokens=min(tokens or own.max_batched_tokens, own.max_batched_tokens),
            long_prefill_threshold=chunk_tokens or own.long_prefill_threshold,
        )

    async def release(self, ticket_id: str) -> bool:
        self._alive()
        return self._handoff.release(ticket_id)

    def frames(self) -> AsyncIterator[EngineFrame]:
        return self._outbox.frames()

    def stats(self) -> EngineStats:
        self._alive()
        scheduler, handoff = self._scheduler, self._handoff
        counters = scheduler.counters
        stats = EngineStats(
            blocks_total=scheduler.pool.total,
            blocks_used=scheduler.pool.used,
            running=len(scheduler.running),
            waiting=scheduler.waiting_count,
            preemptions=counters.preemptions,
            recomputed_tokens=counters.recomputed_tokens,
            prompt_tokens=counters.prompt_tokens,
            generated_tokens=self._generated,
            cached_prompt_tokens=counters.cached_prompt_tokens,
            steps=self._steps,
            step_time_s=self._step_time_s,
            tickets_held=len(handoff.pins),
            tickets_expired=handoff.pins.expired_total,
            failed_notifications=handoff.reader.failed_notifications,
            transfers=handoff.reader.transfers(),
            totals=self._totals.told(),
            most_step_tokens=self._setup.limits.max_batched_tokens,
        )
        return self.injector.stats(stats)

    async def warm(self, peer: WorkerInfo) -> WarmResult:
        self._alive()
        return await self._handoff.reader.warm(peer.peer_params)

    # steps

    async def _live(self) -> None:
        try:
            await self._run()
        except Exception as error:
            # A defect here must look like what it is to the worker: an engine that has died.
            log.exception("the simulated engine failed")
            self._die(f"{type(error).__name__}: {error}")

    async def _run(self) -> None:
        scheduler = self._scheduler
        due, computing = time.monotonic(), False
        while self._dead is None:
            await self.injector.pass_engine_hang()
            if self._outbox.full:
                await self._outbox.room()
            step = scheduler.schedule()
            for sequence in step.loading:
                self._handoff.start_pull(self._generations[sequence.request_id])
            if not step.computes:
                self._end_stuck()
                self._publish([])
                if computing:
                    self._handoff.tell_busy(False)
                self._wake.clear()
                await self._wake.wait()
                due, computing = time.monotonic(), False
                continue
            if not computing:
                computing = True
                self._handoff.tell_busy(True)
            self._mark_started(step)
            seconds = self._seconds(step)
            # A sleep that came back late is made up for, unless the engine fell far behind.
            due = max(due, time.monotonic() - _MAX_LAG_S) + seconds
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self._complete(step, seconds)

    def _seconds(self, step: Step) -> float:
        cost = self._setup.profile.cost
        seconds = cost.step_s(step.decodes, step.context_tokens, step.chunks)
        seconds *= self._handoff.neighbours.stretch(prompts=bool(step.chunks))
        return self.injector.step_s(seconds) / self._setup.config.speedup

    def _mark_started(self, step: Step) -> None:
        for sequence in step.admitted:
            sequence.priority = let_in(sequence.priority)  # whom the engine preempts is no matter of who went first
            generation = self._generations[sequence.request_id]
            if generation.first_step_s is None:
                generation.first_step_s = self.injector.now()
            self._handoff.decline(generation)  # a pull whose tokens were all in the local cache

    def _complete(self, step: Step, seconds: float) -> None:
        """The step has run: samples for every sequence that has caught up with its tokens."""
        self._steps += 1
        self._totals.add(step, seconds)
        self._step_time_s = seconds if self._steps == 1 else self._step_time_s + (seconds - self._step_time_s) * 0.1
        outputs: list[EngineOutput] = []
        generations = self._generations
        for sequence in self._scheduler.complete_each(step):
            generation = generations[sequence.request_id]
            if generation.struck:
                self._sample_struck(generation, outputs)
            else:
                outputs.append(self._sample(generation))
        if self._dead is None:
            self._publish(outputs)

    def _sample(self, generation: Generation) -> EngineOutput:
        first = not generation.generated
        finish = generation.sample()
        self._generated += 1
        if finish is None and not first and not generation.wants_logprobs:
            return EngineOutput(generation.work.request_id, SequenceDelta((generation.last,)))
        logprobs = generation.logprobs()
        if not first:
            delta = SequenceDelta((generation.last,), logprobs, finish)
            compute_s = 0.0
        else:
            now, started = self.injector.now(), generation.first_step_s or 0.0
            compute_s = now - started
            delta = SequenceDelta(
                (generation.last,),
                logprobs,
                finish,
                cached_tokens=generation.sequence.hit,
                prompt_logprobs=generation.prompt_logprobs(),
                queue_s=max(0.0, started - generation.submitted_s - generation.transfer_s),
                transfer_s=generation.transfer_s,
            )
        ticket = None
        if finish is not None:
            delta, ticket = self._finish(generation, delta)
        return EngineOutput(generation.work.request_id, delta, ticket, compute_s)

    def _finish(self, generation: Generation, delta: SequenceDelta) -> tuple[SequenceDelta, Ticket | None]:
        """Ends a request; with `hold`, or handed over, its KV stays pinned. Like the real one, only a length finish hands off."""
        over = delta.finish is FinishReason.STOP and generation.work.sampling.max_tokens > 1
        moves = delta.finish is FinishReason.HANDED_OVER
        if over or not (generation.hold or moves):
            self._end(generation)
            return delta, None
        ticket = None
        if moves or delta.finish is FinishReason.LENGTH:
            del self._generations[generation.work.request_id]
            self._scheduler.detach(generation.sequence)
            ticket = self._handoff.pin(generation)
        else:
            self._end(generation)
        if ticket is None:
            fault = Fault(FaultKind.HANDOFF_MISSING, "the prefill ended without hand-off parameters")
            return replace(delta, finish=None, fault=fault), None
        return delta, ticket

    def _publish(self, outputs: list[EngineOutput]) -> None:
        if self._late:
            outputs = self._late + outputs
            self._late = []
        for frame in self.injector.frames(outputs):
            self._outbox.put(frame)

    def _end(self, generation: Generation) -> None:
        """Takes a request out and frees its blocks, all but those that a script leaks."""
        self._generations.pop(generation.work.request_id, None)
        sequence = generation.sequence
        if generation.queued:
            self._scheduler.detach(sequence)
        leak = generation.struck.find(faults.Leak)
        if leak is not None:
            sequence.plain -= min(leak.blocks, sequence.plain)
        if generation.queued:
            self._scheduler.free_blocks(sequence)

    def _fail(self, generation: Generation, fault: Fault) -> None:
        """Ends a request with a fault, in the next frame."""
        if generation.work.request_id in self._generations:
            self._end(generation)
            self._late.append(EngineOutput(generation.work.request_id, SequenceDelta((), fault=fault)))
            self._wake.set()

    def _end_stuck(self) -> None:
        """A sequence that outgrew the whole KV space would wait for ever: it ends with a fault instead."""
        scheduler = self._scheduler
        if scheduler.running or scheduler.holding or not scheduler.waiting:
            return
        sequence = scheduler.waiting.first()
        needed, total = -(-sequence.total // self._setup.limits.block_size), scheduler.pool.total
        if needed > total:
            message = f"{sequence.total} tokens need {needed} KV blocks of {total}"
            numbers = {"blocks_needed": float(needed), "blocks_total": float(total)}
            self._fail(self._generations[sequence.request_id], Fault(FaultKind.KV_CAPACITY, message, numbers))

    # faults

    def _sample_struck(self, generation: Generation, outputs: list[EngineOutput]) -> None:
        """As `_sample`, for a request that a script has something in store for."""
        struck, generated = generation.struck, generation.generated
        death = struck.find(faults.Die)
        if death is not None and generated >= death.after_tokens:
            self._die_as_scripted(death)
            return
        hang = struck.hang(Phase.DECODE if generated else Phase.PREFILL)
        if hang is not None and generated >= hang.after_tokens and not generation.hung_enough(hang.for_s):
            self._scheduler.take_back(generation.sequence)  # the next step computes it again, and so on
            return
        if (fault := midway(struck, generated)) is not None:
            self._fail(generation, fault)
            return
        output = self._sample(generation)
        output = replace(output, delta=deltas(struck, generation.generated, output.delta))
        slow = struck.find(faults.SlowFirstToken)
        if slow is not None and (not generated or generation.kept_back):
            generation.kept_back.append(output)
            if not generated:
                self._handoff.spawn(self._bring_later(generation, slow.delay_s))
            return
        outputs.append(output)

    async def _bring_later(self, generation: Generation, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        kept, generation.kept_back = generation.kept_back, []
        if not generation.aborted:
            self._late += kept
            self._wake.set()

    async def _queue_later(self, generation: Generation, hang: faults.Hang) -> None:
        generation.queued = False
        await self.injector.pass_hang(hang)
        if not generation.aborted:
            generation.queued = True
            self._scheduler.add(generation.sequence)
            self._wake.set()

    def _die_as_scripted(self, death: faults.Die) -> None:
        if death.how == "process":
            os.kill(os.getpid(), signal.SIGKILL)
        self._die("scripted death")

    # life

    def _woken(self) -> None:
        self._wake.set()

    def _alive(self) -> None:
        if self._dead is not None:
            raise EngineDeadError(self._dead)

    def _die(self, reason: str) -> None:
        if self._dead is None:
            self._dead = reason
            self._handoff.die()
            self._outbox.fail(reason)
            self._wake.set()
