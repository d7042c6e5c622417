"""Workers that seem full, held by other gateways. Pure.

A worker keeps room only for gateways that it has refused (`decode_pool/refused.py`), and one that seems full is not
asked. So whoever waits asks there now and then all the same.
"""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(slots=True)
class Insistence:
    """Which worker is asked: the same one for as long as the same bid waits, since room for it gathers there; then the next."""

    _worker_id: str = ""
    _arrival: int | None = None

    def at(self, workers: Collection[str], arrival: int) -> str | None:
        """`workers`: those that others hold something of. `arrival`: of the bid at the head of the line."""
        if not workers:
            return None
        if self._worker_id not in workers or arrival != self._arrival:
            later = [each for each in workers if each > self._worker_id]
            self._worker_id, self._arrival = min(later or workers), arrival
        return self._worker_id

    def in_vain(self) -> None:
        """That worker is none for it."""
        self._arrival = None
