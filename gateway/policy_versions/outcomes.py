"""What became of the requests that each version decided, side by side (R-79)."""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from gateway.observe.surface_observer import SilentSurfaceObserver
from gateway.request.phase import Phase
from gateway.request.record import Record

#: Versions that are counted; the one that was used longest ago is forgotten beyond.
MOST_VERSIONS = 8
#: The latest times of a version that its quantiles are of.
_TIMES = 4096


@dataclass(slots=True)
class Account:
    """Of one version. `admitted`: got KV. Tokens are of answers that completed; `error_tokens` sums |estimate - came|."""

    requests: int = 0
    admitted: int = 0
    completed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    abandoned: int = 0
    capped: int = 0
    estimated_tokens: float = 0.0
    realised_tokens: int = 0
    error_tokens: float = 0.0
    ttft_s: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    tpot_s: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    queue_s: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))

    def add(self, record: Record) -> None:
        self.requests += 1
        self.admitted += Phase.RESERVED in record.entered_s
        self.capped += record.capped
        reason = record.reason.value if record.reason else "none"
        if record.phase is Phase.REJECTED:
            self.refused[reason] += 1
        elif record.phase is Phase.CANCELLED:
            self.abandoned += 1
        elif record.phase is Phase.FAILED:
            self.failed[reason] += 1
        else:
            self._completed(record)
        if record.first_token_s is not None:
            self.ttft_s.append(record.first_token_s - record.started_s)
            self.queue_s.append(record.spent_s.get(Phase.QUEUED, 0.0))

    def _completed(self, record: Record) -> None:
        self.completed += 1
        self.estimated_tokens += record.estimated_tokens
        self.realised_tokens += record.completion_tokens
        self.error_tokens += abs(record.estimated_tokens - record.completion_tokens)
        gaps = record.completion_tokens - record.choices
        if gaps > 0 and record.first_token_s is not None and record.last_token_s is not None:
            self.tpot_s.append((record.last_token_s - record.first_token_s) * record.choices / gaps)

    @property
    def ttft_p90_s(self) -> float | None:
        found = _quantiles(self.ttft_s)
        return found["p90"] if found else None

    def document(self) -> dict[str, Any]:
        """Plain values; a figure is None where nothing was seen."""
        realised = self.realised_tokens
        return {
            "requests": self.requests,
            "admitted": self.admitted,
            "completed": self.completed,
            "refused": dict(sorted(self.refused.items())),
            "failed": dict(sorted(self.failed.items())),
            "abandoned": self.abandoned,
            "capped": self.capped,
            "ttft_s": _quantiles(self.ttft_s),
            "tpot_s": _quantiles(self.tpot_s),
            "queue_s": _quantiles(self.queue_s),
            "estimated_to_realised": round(self.estimated_tokens / realised, 4) if realised else None,
            "estimate_error": round(self.error_tokens / realised, 4) if realised else None,
        }


class Outcomes:
    """By version, bounded."""

    def __init__(self, most: int = MOST_VERSIONS) -> None:
        self._most = most
        self._accounts: OrderedDict[str, Account] = OrderedDict()

    def add(self, record: Record) -> None:
        self.of(record.policy).add(record)
        self._accounts.move_to_end(record.policy)
        if len(self._accounts) > self._most:
            self._accounts.popitem(last=False)

    def of(self, version: str) -> Account:
        return self._accounts.setdefault(version, Account())

    def __iter__(self) -> Iterator[tuple[str, Account]]:
        return iter(self._accounts.items())


class OutcomeWatch(SilentSurfaceObserver):
    """Counts every request that ended: for good in `ever`, and in `trial` while a canary runs, which `judge` may end."""

    def __init__(self) -> None:
        self.ever = Outcomes()
        self.trial: Outcomes | None = None
        self.judge: Callable[[], None] = lambda: None

    def ended(self, record: Record) -> None:
        if not record.policy:
            return
        self.ever.add(record)
        if self.trial is not None:
            self.trial.add(record)
            self.judge()


def _quantiles(values: Sequence[float] | deque[float]) -> dict[str, float] | None:
    ascending = sorted(values)
    if not ascending:
        return None
    return {
        name: round(ascending[ceil(level * len(ascending)) - 1], 6)
        for name, level in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    }
