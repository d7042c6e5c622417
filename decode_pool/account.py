"""What is promised against what the engine says that it uses: whether so many blocks and slots are there. Pure."""

from dataclasses import dataclass

from decode_pool.charges import Charges
from decode_pool.grants import Grants
from decode_pool.load import Load, Shape
from gateway.policy.admission.move import emergency_growth
from proto.reservation import RefusalReason, ReserveRequest
from transfer.ticket import blocks_for


@dataclass(frozen=True, slots=True)
class Account:
    """Reads what the ledger writes."""

    shape: Shape
    charges: Charges
    grants: Grants

    def needed(self, request: ReserveRequest) -> int:
        """Blocks for the prompt, once, and for each answer's part of the growth."""
        shared, share = self.split(request)
        return shared + share * max(1, request.sequences)

    def split(self, request: ReserveRequest, *, forecast: bool = False) -> tuple[int, int]:
        """Full blocks of the prompt, and each answer's own: for its growth, or if that is forecast, to begin with."""
        size = self.shape.block_size_tokens
        shared, rest = divmod(request.prompt_tokens, size)
        growth = 1 if forecast else max(1, blocks_for(request.growth_tokens, max(1, request.sequences)))
        return shared, blocks_for(rest + growth, size)

    def committed(self, load: Load) -> int:
        """Blocks that are not free to promise: the larger of what the engine uses and what is reserved (B-54).

        Where work without reservations shares the engine, what reserved sequences do not hold of the engine's use is
        that work's, and comes on top of the reserved.
        """
        return max(load.blocks_used, self.charges.blocks + self._foreign_blocks(load))

    def certain(self, load: Load) -> int:
        """Committed, whatever becomes of the answers that are forecast: reserved in full, or used by others."""
        filled = self.charges.blocks - self.charges.certain - self.charges.waiting
        return max(self.charges.certain + self._foreign_blocks(load), load.blocks_used - filled)

    def slots_used(self, load: Load) -> int:
        foreign = max(0, load.sequences - self.grants.live) if load.foreign else 0
        return max(load.sequences, self.charges.sequences + foreign)

    def objection(self, request: ReserveRequest, needed: int, load: Load) -> RefusalReason | None:
        shape, sequences = self.shape, max(1, request.sequences)
        if needed > shape.blocks_total or sequences > shape.slots_total or request.prompt_tokens >= shape.max_model_len:
            return RefusalReason.NEVER_FITS
        if self.slots_used(load) + sequences > shape.slots_total:
            return RefusalReason.SLOTS_BUSY
        if self.committed(load) + needed > shape.blocks_total:
            return RefusalReason.KV_BUSY
        return None

    def room_for_now(self, needed: int, load: Load) -> bool:
        """Whether it fits with everybody's growth for a moment, whatever may be held after that: what runs here goes on, and
        newcomers wait."""
        growth = emergency_growth(self.charges.sequences, self.shape.block_size_tokens)
        return self.committed(load) + needed + growth <= self.shape.blocks_total

    def _foreign_blocks(self, load: Load) -> int:
        """Of work without reservations."""
        if not load.foreign:
            return 0
        return max(0, load.blocks_used - self.grants.filled_blocks(self.shape.block_size_tokens))
