"""When answers end: known beforehand, as long as nothing but decoding goes on."""

import heapq
from dataclasses import dataclass

from engine.simulated.job import Job
from engine.simulated.scheduler import Scheduler
from engine.simulated.sequence import Sequence, Status


@dataclass(slots=True)
class Live:
    job: Job
    sequence: Sequence
    limit: int


class Ends:
    """A heap by the clock of the cohort at which a member's answer ends; entries that no longer hold are put right
    when they come up."""

    def __init__(self, scheduler: Scheduler, live: dict[str, Live]) -> None:
        self._scheduler = scheduler
        self._live = live
        self._heap: list[tuple[int, int, Sequence]] = []

    def add(self, sequence: Sequence, left: int) -> None:
        """An answer with so many tokens left."""
        heapq.heappush(self._heap, (self._scheduler.cohort.clock + left, sequence.arrival, sequence))

    def sooner(self, sequence: Sequence) -> None:
        """An answer's limit has come down while it goes on."""
        end = self._end_of(sequence)
        if end is not None:
            heapq.heappush(self._heap, (end, sequence.arrival, sequence))

    def next(self) -> int:
        """The clock of the cohort at which its next answer ends."""
        while (entry := self._heap[0])[0] != (end := self._end_of(entry[2])):
            heapq.heappop(self._heap)
            if end is not None:
                heapq.heappush(self._heap, (end, *entry[1:]))
        return entry[0]

    def reached(self) -> list[Sequence]:
        """Those of the cohort whose answers are as long as they shall be."""
        ends, clock = self._heap, self._scheduler.cohort.clock
        found: dict[Sequence, None] = {}
        while ends and ends[0][0] <= clock:
            entry = heapq.heappop(ends)
            end = self._end_of(entry[2])
            if end is not None and end <= clock:
                found[entry[2]] = None
            elif end is not None:
                heapq.heappush(ends, (end, *entry[1:]))
        return [sequence for sequence in found if sequence.steady]

    def _end_of(self, sequence: Sequence) -> int | None:
        """When an answer ends if it goes on as now; None if it does not go on. A pause only moves the end."""
        live = self._live.get(sequence.request_id)
        if live is None or live.sequence is not sequence or sequence.status is not Status.RUNNING:
            return None
        return self._scheduler.cohort.sampled + live.limit - sequence.total
