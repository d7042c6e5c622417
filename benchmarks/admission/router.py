"""The gateway's router for every contender alike, with what a live gateway hears of its workers.

The simulator's workers say how much is free, not what their forecast leaves. Live ones say both, by their own rule, and are
asked as long as an answer could begin: they alone know.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from decode_pool.expected import Admission
from decode_pool.ledger import Ledger, Shape
from gateway.policy.need import Need
from gateway.policy.routing import DecodeCandidate, Fleet, Outlook, Rules, place


@dataclass(slots=True)
class Router:
    """Both hooks of the simulator: what a worker's account is, and where a prompt goes."""

    admission: Admission
    _ledgers: dict[str, Ledger] = field(default_factory=dict)

    def ledger(self, shape: Shape, clock: Callable[[], float], name: str) -> Ledger:
        made = Ledger(shape, clock, name, self.admission)
        self._ledgers[name.rpartition("-")[0]] = made  # without its epoch
        return made

    def place(self, need: Need, fleet: Fleet, rules: Rules, avoid: set[str], never: set[str]) -> Outlook:
        told = tuple(self._told(decode) for decode in fleet.decodes)
        return place(need, replace(fleet, decodes=told), rules, avoid, never)

    def _told(self, decode: DecodeCandidate) -> DecodeCandidate:
        ledger = self._ledgers[decode.worker_id]
        free = decode.blocks_total - ledger.reserved_blocks
        headroom = decode.blocks_free - ledger.expected.budget.pool_blocks
        return replace(decode, blocks_free=free, headroom_blocks=float(headroom))
