"""How the latest requests that ended in an error ended, for `tandem explain`. No prompt text, bounded."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from gateway.request.errors import RequestError
from gateway.request.phase import Phase


@dataclass(frozen=True, slots=True)
class Failed:
    """Plain values: an exception would hold on to every frame that it passed, the body among them.

    `phase`: where it ended; in `received` no policy had looked at it, so there is no decision to show.
    """

    status: int
    code: str
    message: str
    param: str | None
    numbers: Mapping[str, float]
    retry_after_s: float | None
    phase: str
    at_s: float

    @classmethod
    def of(cls, error: RequestError, phase: Phase, now_s: float) -> Self:
        """In full: the client may have been told less."""
        return cls(
            error.status,
            error.reason.value,
            error.message,
            error.param,
            error.numbers,
            error.retry_after_s,
            phase.value,
            now_s,
        )

    def document(self, now_s: float) -> dict[str, Any]:
        plain = asdict(self)
        return plain | {"age_s": round(now_s - plain.pop("at_s"), 3)}


@dataclass(slots=True)
class FailedRequests:
    """By request, the oldest forgotten. Apart from the decisions, so that a flood of bad requests pushes out none."""

    _kept: OrderedDict[str, Failed] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, request_id: str, failed: Failed, most: int) -> None:
        self._kept[request_id] = failed
        while len(self._kept) > most:
            self._kept.popitem(last=False)

    def of(self, request_id: str) -> Failed | None:
        return self._kept.get(request_id)
