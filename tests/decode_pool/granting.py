"""A decode worker's ledger, and two gateways that ask it for room."""

from dataclasses import dataclass, field

from decode_pool.expected import Admission
from decode_pool.hold import Hold
from decode_pool.ledger import Ledger, Load, Shape
from gateway.policy.estimate.estimate import Estimate
from proto.reservation import Refusal, RefusalReason, Reservation, ReserveRequest

SHAPE = Shape(blocks_total=400, block_size_tokens=16, slots_total=64, max_model_len=4_096)
NO_POOL = Admission(epsilon=0.01, pool_share=0.0, spread=0.0, learn=False)


@dataclass
class Worker:
    admission: Admission = NO_POOL
    shape: Shape = SHAPE
    now: float = 0.0
    asked: int = 0
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.shape, lambda: self.now, "w", self.admission)

    def forward(self, seconds: float) -> None:
        self.now += seconds

    def ask(
        self,
        estimate: Estimate | None,
        prompt: int = 160,
        sequences: int = 1,
        gateway: str = "g1",
        growth: int = 1_000,
        arrival_s: float = 0.0,
        load: Load | None = None,
        others_first: bool = False,
        generated: int = 0,
        emergency: bool = False,
        moves: bool = False,
    ) -> Reservation | Refusal:
        """`generated`: of the prompt."""
        self.asked += 1
        request = ReserveRequest(
            gateway,
            f"r{self.asked}",
            prompt,
            growth,
            10.0,
            sequences,
            () if estimate is None else tuple(estimate.lengths.tolist()),
            2_000,
            arrival_s=arrival_s,
            generated_tokens=generated,
            emergency=emergency,
            moves=moves or emergency,
        )
        return self.ledger.reserve(request, load or Load(), others_first=others_first)

    def fill(self, estimate: Estimate | None) -> list[str]:
        """The reservations that two gateways get between them, until neither gets any more."""
        granted: list[str] = []
        while isinstance(reply := self.ask(estimate, gateway=f"g{1 + self.asked % 2}"), Reservation):
            granted.append(reply.reservation_id)
        assert reply.reason is RefusalReason.KV_BUSY
        return granted

    def start(self, reservation_id: str, tokens: int = 160) -> Hold:
        grant = self.ledger.grants.named(reservation_id)
        assert grant is not None
        hold = self.ledger.start(reservation_id, grant.request.gateway_id, tokens)
        assert hold is not None
        return hold
