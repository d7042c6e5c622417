"""Estimates against what came: error budgets, calibration and headroom by class (R-04, R-09, R-50)."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gateway.policy.estimate.bins import bins_of
from gateway.policy.estimate.estimate import Estimate
from gateway.policy.estimate.features import ClassKey, FinishedBy
from gateway.policy.estimate.knobs import Knobs
from gateway.policy.estimate.posterior import posterior
from gateway.policy.estimate.sketch import Sketch

PIT_BINS = 10
#: Upper edges of estimate ÷ realised; one more bin holds what is above.
RATIO_EDGES = (0.0625, 0.125, 0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 8.0, 16.0)
#: Realised ÷ reserved is kept in thousandths on a sketch's grid: 0.001 to 1000.
_MILLE = 1000
_RATIO_BINS = bins_of(0.01, 1000 * _MILLE)
#: Pseudo-observations that say the estimate is right.
_FAITH = 10.0
#: Answers after which a headroom factor is computed again.
_STALE = 5


@dataclass(slots=True)
class Account:
    """Running totals of one class. Reserved is the target quantile of the estimate given at admission.

    An answer that its client or a failure ended counts as an under-estimate when it had passed what was reserved and
    as nothing otherwise: how long it would have become is not known.
    """

    requests: int = 0
    left_early: int = 0
    under_requests: int = 0
    under_tokens: int = 0
    over_requests: int = 0
    over_tokens: int = 0
    estimated_tokens: float = 0.0
    realised_tokens: int = 0
    pit: list[int] = field(default_factory=lambda: [0] * PIT_BINS)
    ratio: list[int] = field(default_factory=lambda: [0] * (len(RATIO_EDGES) + 1))

    @property
    def realised_to_estimated(self) -> float | None:
        """Tokens that came ÷ the sum of mean estimates, of answers that ended by themselves or at their cap."""
        return self.realised_tokens / self.estimated_tokens if self.estimated_tokens else None

    def under_burn(self, budget: float) -> float:
        """Share of requests that passed what was reserved ÷ the share allowed: above 1 the budget is overspent."""
        return self.under_requests / (self.requests * budget) if self.requests else 0.0

    def over_burn(self, budget: float) -> float:
        """Tokens reserved for nothing ÷ tokens that came, over the share allowed."""
        return self.over_tokens / (self.realised_tokens * budget) if self.realised_tokens else 0.0


class Headroom:
    """The factor that would have made recent reservations enough at the target quantile; 1 while they are (R-04)."""

    def __init__(self, knobs: Knobs, now_s: float) -> None:
        self._target, self._max = knobs.target_quantile, knobs.headroom_max
        half_life = knobs.headroom_half_life_observations
        self._sketch = Sketch(_RATIO_BINS, half_life, knobs.half_life_s, now_s)
        self._faith = np.zeros(_RATIO_BINS.count)
        self._faith[_RATIO_BINS.key(_MILLE)] = 1.0
        self._factor, self._pending = 1.0, 0

    def add(self, realised: int, reserved: int, cut: bool, now_s: float) -> None:
        self._sketch.add(_RATIO_BINS.key(_MILLE * realised / max(1, reserved)), cut, now_s)
        self._pending += 1

    def factor(self, now_s: float) -> float:
        """Made anew for every few answers only: admission asks far more often."""
        if self._pending >= _STALE:
            self._factor, self._pending = self._now(now_s), 0
        return self._factor

    def _now(self, now_s: float) -> float:
        reached = posterior(self._faith, _FAITH, *self._sketch.weights(now_s)).cumsum()
        at = min(int(reached.searchsorted(self._target)), _RATIO_BINS.count - 1)
        return min(self._max, max(1.0, float(_RATIO_BINS.tokens[at]) / _MILLE))

    def forget_by(self, knobs: Knobs, now_s: float) -> None:
        """Another half-life from now on."""
        self._sketch.forget_by(knobs.headroom_half_life_observations, knobs.half_life_s, now_s)

    def document(self, now_s: float) -> dict[str, Any]:
        return self._sketch.document(now_s)

    def load(self, document: dict[str, Any]) -> None:
        self._sketch.load(document)
        self._pending = _STALE


class Ledger:
    """Accounts by class, the least recently used forgotten beyond `max_classes`."""

    def __init__(self, knobs: Knobs) -> None:
        self._knobs = knobs
        self._accounts: OrderedDict[ClassKey, tuple[Account, Headroom]] = OrderedDict()

    def record(self, key: ClassKey, estimate: Estimate, tokens: int, finished_by: FinishedBy, now_s: float) -> None:
        account, headroom = self._open(key, now_s)
        reserved = estimate.quantile(self._knobs.target_quantile)
        headroom.add(max(1, tokens), reserved, finished_by.left_early, now_s)
        account.requests += 1
        if tokens > reserved:
            account.under_requests += 1
            account.under_tokens += tokens - reserved
        if finished_by.left_early:
            account.left_early += 1
            return
        if tokens < reserved:
            account.over_requests += 1
            account.over_tokens += reserved - tokens
        mean = estimate.mean
        account.estimated_tokens += mean
        account.realised_tokens += tokens
        account.pit[min(PIT_BINS - 1, int(estimate.pit(tokens) * PIT_BINS))] += 1
        account.ratio[_edge(mean / max(1, tokens))] += 1

    def adopt(self, knobs: Knobs, now_s: float) -> None:
        """Other knobs from now on; the accounts go on."""
        self._knobs = knobs
        for _, headroom in self._accounts.values():
            headroom.forget_by(knobs, now_s)

    def account(self, key: ClassKey) -> Account:
        """Empty for a class that is not known."""
        found = self._accounts.get(key)
        return found[0] if found else Account()

    def headroom(self, key: ClassKey, now_s: float) -> float:
        """Multiply a reservation at the target quantile by this; 1 for a class that is not known."""
        found = self._accounts.get(key)
        return found[1].factor(now_s) if found else 1.0

    def __iter__(self) -> Iterator[tuple[ClassKey, Account]]:
        return ((key, account) for key, (account, _) in self._accounts.items())

    def document(self, now_s: float) -> list[dict[str, Any]]:
        return [
            {"key": list(key), "account": asdict(account), "headroom": headroom.document(now_s)}
            for key, (account, headroom) in self._accounts.items()
        ]

    def load(self, document: list[dict[str, Any]], now_s: float) -> None:
        for row in document:
            headroom = Headroom(self._knobs, now_s)
            headroom.load(row["headroom"])
            self._accounts[tuple(row["key"])] = (Account(**row["account"]), headroom)

    def _open(self, key: ClassKey, now_s: float) -> tuple[Account, Headroom]:
        found = self._accounts.get(key)
        if found is None:
            found = self._accounts[key] = (Account(), Headroom(self._knobs, now_s))
            if len(self._accounts) > self._knobs.max_classes:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(key)
        return found


def _edge(ratio: float) -> int:
    for index, edge in enumerate(RATIO_EDGES):
        if ratio <= edge:
            return index
    return len(RATIO_EDGES)
