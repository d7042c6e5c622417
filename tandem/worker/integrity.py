"""Do ledger, dispatcher and engine agree on what is going on? Pure, and run all the time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """One reading of every count that has to agree with another."""

    live: int  # requests that the dispatcher routes
    aborting: int
    prefills: int
    sequences: int  # decode sequences that hold something
    pulls: int  # KV pulls under way
    ledger_live: int
    reserved_blocks: int
    recounted_blocks: int
    leases: int
    engine_running: int
    engine_waiting: int
    engine_blocks_used: int
    engine_tickets: int

    @property
    def idle(self) -> bool:
        return not (self.live or self.aborting or self.prefills or self.sequences)


def drift(counts: Counts) -> tuple[str, ...]:
    """Every disagreement, in words. Engine figures may lag a step behind, so only what lasts is drift."""
    c = counts
    engine_requests = c.engine_running + c.engine_waiting
    checks = {
        f"{c.reserved_blocks} blocks reserved, {c.recounted_blocks} when counted again": (
            c.reserved_blocks == c.recounted_blocks
        ),
        f"{c.sequences} sequences, {c.ledger_live} in the ledger": c.sequences == c.ledger_live,
        f"{c.live} requests routed for {c.prefills} prefills and {c.sequences} sequences": (
            c.live <= c.prefills + c.sequences
        ),
        f"the engine has {engine_requests} requests, {c.live + c.aborting} are known": (
            engine_requests <= c.live + c.aborting
        ),
        f"the engine holds {c.engine_tickets} tickets, {c.leases} were given out": c.engine_tickets <= c.leases,
        f"{c.pulls} pulls under way for {c.sequences} sequences": c.pulls <= c.sequences,
        f"the engine uses {c.engine_blocks_used} KV blocks at idle": (
            not c.idle or c.engine_tickets > 0 or c.engine_blocks_used == 0
        ),
    }
    return tuple(words for words, holds in checks.items() if not holds)


class Watchman:
    """Reports drift that has lasted: two readings of a moving system may disagree for a moment."""

    def __init__(self, patience_s: float = 2.0) -> None:
        self._patience_s = patience_s
        self._since_s: float | None = None

    def look(self, counts: Counts, now_s: float) -> tuple[str, ...]:
        found = drift(counts)
        if not found:
            self._since_s = None
            return ()
        if self._since_s is None:
            self._since_s = now_s
        return found if now_s - self._since_s >= self._patience_s else ()
