"""One decode worker's requests and the forecast of the KV they are going to hold. Pure: time is counted in steps.

Every running sequence gains one token a decode step, so the future needs no clock: a request with prompt p that has
generated g holds blocks for p + g + t tokens at step t from now with chance S(g + t) / S(g), and nothing otherwise.
The book keeps sums of the moments of that over all its requests on a fixed grid of steps; a candidate is one addition.
Anchor: the Past-Future scheduler (arXiv 2507.10150), which looks at every future completion of one drawn length each.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gateway.policy.admission.common_error import GROUPS, CommonError, group_of
from gateway.policy.admission.latest import LatestOfClasses
from gateway.policy.admission.risk import (
    COUNT,
    Budget,
    M,
    Outlook,
    contribution,
    contribution_of_one,
    outlook,
    quantile,
    shape_of,
)
from gateway.policy.admission.rows import Candidate, Rows
from gateway.policy.admission.shapes import shape_like
from gateway.policy.admission.survival import Lengths, Table, grid
from gateway.policy.estimate.estimate import LEVELS, Floats

#: A book's curve is drawn anew when it is older than this many steps: half a block of 16 tokens,
REFRESH_STEPS = 8
#: or this share of an answer's life, where that is more, but not more than so many steps.
_LIFE_SHARE, _OLDEST_STEPS = 1 / 64, 64
_GRID = grid()
_GRID_BYTES = _GRID.tobytes()
_MEDIAN = int(np.searchsorted(LEVELS, 0.5))
_BLOCK = 16
#: A change of the common error by less than this is not worth a new curve.
_MOVED = 0.05


@dataclass(frozen=True, slots=True)
class Forecast:
    """KV blocks at future decode steps (parallel arrays). `high` is exceeded with the budget's epsilon."""

    steps: Floats
    mean: Floats
    deviation: Floats
    high: Floats
    outlook: Outlook


class KvBook:
    """Requests come with `add`, grow with `progress` and leave with `remove` (finished, preempted, aborted).

    `spread`: standard deviation of the common error of all lengths, as a share of them (R-13). With an `error` it
    learns from the ends of its requests how far all lengths are off, and forecasts by that.
    `fixed_blocks` are held whatever happens: prefixes shared by several answers, work of others on the same engine.
    """

    def __init__(
        self,
        blocks_total: int,
        block_size_tokens: int,
        spread: float = 0.0,
        steps: Floats = _GRID,
        refresh_steps: int = REFRESH_STEPS,
        error: CommonError | None = None,
    ) -> None:
        self.blocks_total = blocks_total
        self.block_size_tokens = block_size_tokens
        self.fixed_blocks = 0
        self.now = 0
        self.steps = steps
        self._grid = _GRID_BYTES if steps is _GRID else steps.tobytes()
        self.rows = Rows(len(steps))
        self.totals: Floats = np.zeros((COUNT, len(steps)))
        self._error = error
        # By age of the answers: see `CommonError`.
        self._spread = np.full(GROUPS, spread) if error is None else error.spread
        self._stretch = np.ones(GROUPS) if error is None else error.stretch
        self._refresh_steps = refresh_steps
        self._latest = LatestOfClasses()
        self._drawn = self._ends = 0
        self.patience = refresh_steps
        self._asked: tuple[Candidate, Floats] | None = None  # whose moments were wanted last
        self._at_once: set[str] = set()  # waiting rows whose moments are those of one that starts now

    def __len__(self) -> int:
        return self.rows.count

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.rows.place

    @property
    def held_blocks(self) -> int:
        """Blocks in use now, the block of the token to come included: exact, not a forecast."""
        rows, here = self.rows, slice(0, self.rows.count)
        tokens = self.now - rows.started[here]
        blocks = np.ceil((rows.prompt[here] + np.maximum(tokens, 0.0) + 1.0) / self.block_size_tokens)
        arrived = (tokens >= 0.0) & (rows.waiting[here] == 0.0)
        return self.fixed_blocks + int(blocks[arrived].sum())

    @property
    def life_steps(self) -> float:
        """Steps that an answer here is expected to run, from beginning to end: the mean of their medians. 0 without any."""
        medians = self.rows.lengths[: self.rows.count, _MEDIAN]
        return float(medians.mean()) if len(medians) else 0.0

    def add(
        self, request_id: str, prompt_tokens: int, estimate: Lengths, arrival_steps: int = 0, *,
        generated_tokens: int = 0, limit_tokens: int | None = None,
    ) -> None:  # fmt: skip
        """ValueError when it is here already. Without a limit the longest length of the estimate is taken as one."""
        limit = int(estimate.lengths[-1]) if limit_tokens is None else limit_tokens
        self.admit(Candidate(request_id, prompt_tokens, estimate, limit, arrival_steps, generated_tokens))

    def admit(self, candidate: Candidate, moments: Floats | None = None, name: str = "") -> None:
        """`moments`: the candidate's, where they are known already (`moments_of`). Several answers are several rows, each by a
        `name` of its own; without one it goes by its request's."""
        name = name or candidate.request_id
        if candidate.answers != 1 or candidate.shared_blocks:
            raise ValueError(f"{name}: every answer needs a row of its own here; a shared prefix is fixed")
        if moments is None:
            moments = self.moments_of(candidate)
            self._latest.doubt(candidate)
        if not round(candidate.arrival_steps / _BLOCK) and not candidate.generated_tokens:
            self._at_once.add(name)
        self.rows.add(candidate, name, self.now, moments)
        self.totals += moments

    def progress(self, steps: int = 1) -> None:
        """Every running request has generated `steps` more tokens."""
        self.now += steps

    def arrived(self, request_id: str) -> None:
        """Its KV is here and it starts to decode now, whatever was predicted."""
        at = self.rows.place.get(request_id)
        if at is None or not self.rows.waiting[at]:
            return
        self.rows.waiting[at] = 0.0
        started = self.now - self.rows.begun[at]
        if self.rows.started[at] != started:
            self.rows.started[at] = started
            if request_id not in self._at_once:
                self._redraw_row(at)

    def observed(self, generated: Mapping[str, int]) -> None:
        """What requests have really generated, where that is not one token a step (stalls, speculative decoding)."""
        rows, place = self.rows, self.rows.place
        at = [place[name] for name in generated if name in place]
        if at:
            rows.started[at] = [self.now - tokens for name, tokens in generated.items() if name in place]
            rows.waiting[at] = 0.0

    def remove(self, request_id: str, *, ended: bool = False) -> bool:
        """Its blocks and all growth that was expected of it are free. False when it is not here.

        `ended`: the answer came to its own end, which tells something about lengths; a preempted one did not. What the
        others' living on means is counted when the curve is drawn anew, after a sixteenth of them has ended at the latest.
        """
        if ended and self._error is not None:
            self._learn_end(self._error, request_id)
        self._at_once.discard(request_id)
        moments = self.rows.remove(request_id)
        if moments is None:
            return False
        if not self.rows.count:
            self.totals[:] = 0.0  # exactly: no dust from the subtractions
        else:
            self.totals -= moments
            self._ends += ended
        return True

    def told(self, candidate: Candidate) -> None:
        """Whoever asks for room says what is known by now of the lengths of a class: of the answers that run, too."""
        self._latest.tell(candidate)

    def moments_of(self, candidate: Candidate) -> Floats:
        """What the candidate would add: moments x steps."""
        if self._asked is None or self._asked[0] is not candidate:  # a decision is followed by the promise
            self._asked = candidate, self._moments_of(candidate)
        return self._asked[1]

    def _moments_of(self, candidate: Candidate) -> Floats:
        # To the block: a step more or less makes no difference, and more of them meet.
        started = _BLOCK * round(candidate.arrival_steps / _BLOCK) - candidate.generated_tokens
        generated = candidate.generated_tokens
        group = int(group_of(float(generated))) if generated else 0
        spread, stretch = float(self._spread[group]), float(self._stretch[group])
        tokens, weights = shape_like(
            candidate.estimate.lengths, float(candidate.limit_tokens), float(started), self._grid, spread, stretch
        )
        moments = contribution_of_one(tokens, weights, candidate.prompt_tokens, self.block_size_tokens)
        if candidate.answers != 1 or candidate.shared_blocks:
            moments *= candidate.answers
            moments[[M.MEAN, M.TOP]] += candidate.shared_blocks
        return moments

    def freshen(self) -> None:
        """Draws the curve anew if it is too old to decide by."""
        if self.due:
            self.refresh()

    @property
    def due(self) -> bool:
        """The more requests, the dearer a new curve, and the less one of them matters; of long answers, the less a step."""
        count = self.rows.count
        return self.now - self._drawn >= max(self.patience, count // 8) or self._ends * 16 > count

    def refresh(self) -> None:
        """Draws the curve anew: each request is conditioned on having lived until now."""
        self._drawn, self._ends = self.now, 0
        self._asked = None
        self._at_once.clear()
        count = self.rows.count
        if self._latest.news:
            factor = self._latest.revise(self.rows)
            if self._error is not None and factor is not None:
                self._error.revised(factor)
        life_steps = _LIFE_SHARE * self.life_steps
        self.patience = max(self._refresh_steps, min(_OLDEST_STEPS, int(life_steps)))
        if not count:
            self.totals[:] = 0.0
            return
        here = slice(0, count)
        table = self.rows.table(here)
        if self._error is not None:
            self._learn(self._error, here, table)
        self.rows.hold_back(self.now)
        self.rows.moments[here] = moments = self._moments(here, table)
        np.sum(moments, axis=0, out=self.totals)

    def outlook_of(self, moments: Floats, budget: Budget) -> Outlook:
        limit = self.blocks_total - budget.pool_blocks - self.fixed_blocks
        return outlook(moments, self.steps, float(limit), budget)

    def forecast(self, budget: Budget) -> Forecast:
        self.freshen()
        deviation = np.sqrt(np.maximum(0.0, self.totals[M.VARIANCE] + np.square(self.totals[M.COMMON])))
        return Forecast(
            self.steps,
            self.totals[M.MEAN] + self.fixed_blocks,
            deviation,
            quantile(self.totals, budget.z, budget.epsilon) + self.fixed_blocks,
            self.outlook_of(self.totals, budget),
        )

    def _moments(self, here: slice, table: Table) -> Floats:
        rows = self.rows
        group = group_of(np.maximum(0.0, self.now - rows.started[here, None]))
        shape = shape_of(
            table, rows.started[here, None], float(self.now), self.steps, self._spread[group], self._stretch[group]
        )
        return contribution(*shape, rows.prompt[here, None], self.block_size_tokens)

    def _learn(self, error: CommonError, here: slice, table: Table) -> None:
        error.observe(self._expected_endings(here, table), np.zeros(GROUPS))
        stretch, spread = error.stretch, error.spread
        if max(np.abs(stretch - self._stretch).max(), np.abs(spread - self._spread).max()) > _MOVED:
            self._spread, self._stretch = spread, stretch

    def _expected_endings(self, here: slice, table: Table) -> Floats:
        group = group_of(self.rows.counted[here])
        return np.asarray(
            np.bincount(group, self.rows.expected_endings(here, self.now, table), GROUPS), dtype=np.float64
        )

    def _learn_end(self, error: CommonError, request_id: str) -> None:
        rows, at = self.rows, self.rows.place.get(request_id)
        if at is not None:
            at_limit = self.now - rows.started[at] >= rows.limit[at] - 1.0
            known = rows.lengths[at, 0] == rows.lengths[at, -1]
            expected, seen = np.zeros(GROUPS), np.zeros(GROUPS)
            seen[group_of(rows.counted[at])] = not at_limit and not known
            expected[group_of(rows.counted[at])] = rows.expected_ending(at, self.now)
            error.observe(expected, seen)

    def _redraw_row(self, at: int) -> None:
        here = slice(at, at + 1)
        moments = self._moments(here, self.rows.table(here))[0]
        self.totals += moments - self.rows.moments[at]
        self.rows.moments[at] = moments
