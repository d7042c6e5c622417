"""Tickets in somebody's hand: how much of the lease is left, and whether the KV may still be asked for."""

from dataclasses import dataclass, replace

from proto.fault import Fault, FaultKind
from proto.ticket import Ticket


def blocks_for(tokens: int, block_size_tokens: int) -> int:
    """KV blocks that `tokens` tokens fill."""
    return -(-tokens // block_size_tokens)


def boundary_fault(tokens_sent: int, block_size_tokens: int, blocks_held: int) -> Fault | None:
    """Why a reader must not send this many tokens with a ticket for that many blocks: they must fill exactly those.

    The stock connector dies of one block too many, and with it every request of the engine; of one too few it would
    silently read the wrong end of the prompt.
    """
    needed = blocks_for(tokens_sent, block_size_tokens)
    if needed == blocks_held and tokens_sent > 0:
        return None
    return Fault(
        FaultKind.TICKET_BOUNDARY,
        f"{tokens_sent} tokens need {needed} KV blocks of {block_size_tokens} tokens, the writer holds {blocks_held}",
        {"tokens": tokens_sent, "blocks_needed": needed, "blocks_held": blocks_held},
    )


@dataclass(frozen=True, slots=True)
class HeldTicket:
    """A ticket with the time it arrived, on the holder's own monotonic clock. All ages are durations."""

    ticket: Ticket
    received_s: float

    def age_s(self, now_s: float) -> float:
        return self.ticket.age_s + max(0.0, now_s - self.received_s)

    def remaining_s(self, now_s: float) -> float:
        """Lease left, 0 when it is over."""
        return max(0.0, self.ticket.lease_s - self.age_s(now_s))

    def usable(self, now_s: float, margin_s: float = 0.0) -> bool:
        """Whether more than the margin is left; a ticket that is not usable is prefilled again (B-31)."""
        return self.remaining_s(now_s) > margin_s

    def sent(self, now_s: float) -> Ticket:
        """The ticket as it must be sent on: its age includes the time it was held here."""
        return replace(self.ticket, age_s=self.age_s(now_s))

    def current(self, epoch: str) -> bool:
        """Whether it was issued in `epoch`, the newest known of its writer; an engine restart voids tickets."""
        return self.ticket.epoch == epoch


def objection(
    held: HeldTicket, tokens_sent: int, now_s: float, margin_s: float = 0.0, writer_epoch: str | None = None
) -> Fault | None:
    """Why a reader must not use the ticket, or None. `writer_epoch` None means that no newer one is known."""
    ticket = held.ticket
    if writer_epoch is not None and not held.current(writer_epoch):
        return Fault(
            FaultKind.TICKET_STALE,
            f"the ticket is of epoch {ticket.epoch} of {ticket.worker_id}, which is now at {writer_epoch}",
        )
    if not held.usable(now_s, margin_s):
        return Fault(
            FaultKind.TICKET_EXPIRED,
            f"{held.age_s(now_s):.2f} s of a lease of {ticket.lease_s:.2f} s have passed (margin {margin_s:.2f} s)",
            {"age_s": held.age_s(now_s), "lease_s": ticket.lease_s, "margin_s": margin_s},
        )
    return boundary_fault(tokens_sent, ticket.block_size_tokens, ticket.blocks)
