"""What a worker is willing to take on at this moment."""

from dataclasses import dataclass

from proto.fault import Fault, FaultKind
from proto.worker import Role


@dataclass(slots=True)
class Duty:
    """Role and drain can change at any time; work that is already running is not touched by either."""

    worker_id: str
    epoch: str
    role: Role
    draining: bool = False

    def prefill_refusal(self) -> Fault | None:
        if not self.role.prefills:
            return Fault(FaultKind.WRONG_ROLE, f"{self.worker_id} is a {self.role} worker and takes no prefill legs")
        return self._draining()

    def decode_refusal(self) -> Fault | None:
        if not self.role.decodes:
            return Fault(FaultKind.WRONG_ROLE, f"{self.worker_id} is a {self.role} worker and takes no answers")
        return self._draining()

    def _draining(self) -> Fault | None:
        return Fault(FaultKind.DRAINING, f"{self.worker_id} is draining") if self.draining else None
