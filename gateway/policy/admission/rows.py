"""The requests of one decode worker as columns, so that a forecast is a few array operations. Pure."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import log

import numpy as np

from gateway.policy.admission.risk import COUNT
from gateway.policy.admission.survival import Lengths, Table, limit_of, lived
from gateway.policy.estimate.estimate import LEVELS, Floats

_COLUMNS = ("prompt", "started", "limit", "counted", "waiting", "begun", "lengths", "moments")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One prompt that asks for room. `arrival_steps`: decode steps until its KV arrives (it is still in prefill).

    `limit_tokens`: the most it may generate (`max_tokens`, thinking budget, window). `answers`: so many alike, each with
    blocks of its own for `prompt_tokens`, beside `shared_blocks` for a prefix that they have in common. `kin`: the class
    whose lengths these are; the newest that is known of it counts for all of its answers. None: it is alone.
    """

    request_id: str
    prompt_tokens: int
    estimate: Lengths
    limit_tokens: int
    arrival_steps: int = 0
    generated_tokens: int = 0
    answers: int = 1
    shared_blocks: int = 0
    kin: Hashable = None


@dataclass(slots=True)
class Rows:
    """Compact columns: the last row moves into a gap. `started` is the step at which `generated` was or will be 0."""

    steps: int
    count: int = 0
    ids: list[str] = field(default_factory=list)
    kin: list[Hashable] = field(default_factory=list)
    place: dict[str, int] = field(default_factory=dict)
    prompt: Floats = field(default_factory=lambda: np.zeros(0))
    started: Floats = field(default_factory=lambda: np.zeros(0))
    limit: Floats = field(default_factory=lambda: np.zeros(0))
    counted: Floats = field(default_factory=lambda: np.zeros(0))  # tokens up to which its chance to end is accounted
    waiting: Floats = field(default_factory=lambda: np.zeros(0))  # 1: its KV has not arrived
    begun: Floats = field(default_factory=lambda: np.zeros(0))  # what it has generated elsewhere, with which it arrives
    lengths: Floats = field(default_factory=lambda: np.zeros((0, len(LEVELS))))
    moments: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.moments = np.zeros((0, COUNT, self.steps))

    def add(self, candidate: Candidate, name: str, now: int, moments: Floats) -> None:
        if name in self.place:
            raise ValueError(f"{name} is in the book already")
        if self.count == len(self.prompt):
            self._grow(max(16, 2 * self.count))
        at = self.count
        self.count += 1
        self.ids.append(name)
        self.kin.append(candidate.kin)
        self.place[name] = at
        self.prompt[at] = candidate.prompt_tokens
        self.started[at] = now + candidate.arrival_steps - candidate.generated_tokens
        self.limit[at] = candidate.limit_tokens
        self.counted[at] = candidate.generated_tokens
        self.waiting[at] = candidate.arrival_steps > 0
        self.begun[at] = candidate.generated_tokens
        self.lengths[at] = candidate.estimate.lengths
        self.moments[at] = moments

    def remove(self, request_id: str) -> Floats | None:
        """The moments that go with it; None when it is not here."""
        at = self.place.pop(request_id, None)
        if at is None:
            return None
        gone: Floats = self.moments[at].copy()
        last = self.count - 1
        if at != last:
            for column in (getattr(self, name) for name in _COLUMNS):
                column[at] = column[last]
            self.ids[at], self.kin[at] = self.ids[last], self.kin[last]
            self.place[self.ids[at]] = at
        self.ids.pop()
        self.kin.pop()
        self.count = last
        return gone

    def hold_back(self, now: int) -> None:
        """What should have arrived and has not is expected now."""
        arrives = self.started[: self.count] + self.begun[: self.count]
        late = (self.waiting[: self.count] > 0) & (arrives < now)
        self.started[: self.count][late] = now - self.begun[: self.count][late]

    def generated(self, now: int) -> Floats:
        return np.maximum(0.0, now - self.started[: self.count])

    def table(self, here: slice) -> Table:
        return Table(self.lengths[here], self.limit[here, None])

    def expected_endings(self, here: slice, now: int, table: Table) -> Floats:
        """How often each of these answers, whose `table` it is, should have ended since this was last asked.

        An end at the limit is none, and so is that of an answer whose length is known.
        """
        upto = np.minimum(np.maximum(0.0, now - self.started[here]), table.limits[:, 0] - 1.0)
        upto = np.maximum(upto, self.counted[here])
        beyond = table.beyond(np.stack((upto, self.counted[here]), axis=1))
        lived = beyond[:, 0] / beyond[:, 1]
        self.counted[here] = upto
        endings: Floats = -np.log(np.minimum(lived, 1.0))
        return endings

    def expected_ending(self, at: int, now: int) -> float:
        """The same of one answer."""
        lengths, counted = self.lengths[at], float(self.counted[at])
        limit = limit_of(lengths, float(self.limit[at]))
        upto = max(counted, min(max(0.0, now - float(self.started[at])), limit - 1.0))
        self.counted[at] = upto
        return -log(min(1.0, lived(lengths, limit, upto, counted)))

    def _grow(self, capacity: int) -> None:
        for name in _COLUMNS:
            old: Floats = getattr(self, name)
            new = np.zeros((capacity, *old.shape[1:]))
            new[: len(old)] = old
            setattr(self, name, new)
