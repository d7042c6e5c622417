"""The requests of one engine in virtual time: those that live, and those that have ended and are held."""

from dataclasses import replace

from engine.simulated.ends import Ends, Live
from engine.simulated.job import Event, Job, Kind
from engine.simulated.pace import Pace
from engine.simulated.scheduler import Scheduler
from engine.simulated.sequence import Sequence, Status, SyntheticKeys


class Jobs:
    """What is asked of an engine from outside, between two steps. `pace`, where there is one, knows the gaps of answers."""

    def __init__(self, scheduler: Scheduler, pace: Pace | None) -> None:
        self._scheduler = scheduler
        self._pace = pace
        self._live: dict[str, Live] = {}
        self._held: dict[str, Sequence] = {}
        self._private = 0
        self.ends = Ends(scheduler, self._live)

    def submit(self, job: Job) -> None:
        self._private += 1
        sequence = Sequence(
            job.request_id,
            job.prompt_tokens,
            SyntheticKeys(self._private, job.shared),
            priority=job.priority,
            external=job.external,
        )
        limit = min(job.prompt_tokens + job.output_tokens, self._scheduler.limits.max_model_len)
        self._live[job.request_id] = Live(job, sequence, limit)
        self._scheduler.add(sequence)

    def loaded(self, request_id: str) -> None:
        """Its tokens have arrived; what was aborted meanwhile frees its blocks now."""
        live = self._live.get(request_id)
        if live is not None:
            self._scheduler.loaded(live.sequence)
        else:
            self.release(request_id)

    def abort(self, request_id: str) -> bool:
        """False when it is not here."""
        live = self._live.pop(request_id, None)
        if live is None:
            return False
        if self._pace is not None:
            self._pace.forget(request_id)
        if _loads(live.sequence):
            self._scheduler.detach(live.sequence)
            self._held[request_id] = live.sequence
        else:
            self._scheduler.end(live.sequence)
        return True

    def hand_over(self, request_id: str) -> bool:
        """Ends it at its next token, or the one after that where a KV block ends; False: it has not begun, or ends by itself by
        then, and goes on as it was."""
        live = self._live.get(request_id)
        if live is None or not self.decodes(request_id):
            return False
        limit = live.sequence.total + 1
        if (limit - 1) % self._scheduler.limits.block_size == 0:
            limit += 1
        if limit >= live.limit:
            return False
        live.limit, live.job = limit, replace(live.job, hold=True)
        self.ends.sooner(live.sequence)
        return True

    def release(self, request_id: str) -> bool:
        """Frees what a HELD request keeps; False when there is nothing."""
        sequence = self._held.pop(request_id, None)
        if sequence is None:
            return False
        self._scheduler.free_blocks(sequence)
        return True

    def loading(self, request_id: str) -> bool:
        live = self._live.get(request_id)
        return live is not None and _loads(live.sequence)

    def total_tokens(self, request_id: str) -> int:
        live = self._live.get(request_id)
        return 0 if live is None else live.sequence.total

    def decodes(self, request_id: str) -> bool:
        live = self._live.get(request_id)
        return live is not None and live.sequence.status is Status.RUNNING and live.sequence.answering

    def sampled(self, sequence: Sequence, now_s: float) -> bool:
        """It has one token more; whether that was the last."""
        if self._pace is not None:
            self._pace.token(sequence.request_id, now_s)
        left = self._live[sequence.request_id].limit - sequence.total
        if left > 0:
            self.ends.add(sequence, left)
        return left <= 0

    def end(self, sequence: Sequence, now_s: float) -> Event:
        """Its answer is as long as it shall be."""
        name = sequence.request_id
        gaps = None if self._pace is None else self._pace.end(name, now_s)
        if self._live.pop(name).job.hold:
            self._scheduler.detach(sequence)
            self._held[name] = sequence
            return Event(Kind.HELD, name, now_s, sequence.held, tokens=sequence.total, gaps=gaps)
        self._scheduler.end(sequence)
        return Event(Kind.FINISHED, name, now_s, gaps=gaps)

    def fail_stuck(self, now_s: float) -> Event | None:
        """A sequence that outgrew the whole KV space ends, as in real time."""
        scheduler = self._scheduler
        if scheduler.running or scheduler.holding or not scheduler.waiting:
            return None
        sequence = scheduler.waiting.first()
        if -(-sequence.total // scheduler.limits.block_size) <= scheduler.pool.total:
            return None
        del self._live[sequence.request_id]
        if self._pace is not None:
            self._pace.forget(sequence.request_id)
        scheduler.end(sequence)
        return Event(Kind.FAILED, sequence.request_id, now_s, tokens=sequence.total)


def _loads(sequence: Sequence) -> bool:
    return sequence.status is Status.LOADING and not sequence.loaded
