"""Where an engine can be reached by its peers: what tickets and hand-shakes carry as opaque parameters."""

import json
from dataclasses import asdict, dataclass

from proto.fault import Fault, FaultError, FaultKind
from proto.worker import Topology


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine's side channel listens, and where the engine sits; travels as the opaque parameters."""

    host: str
    port: int
    topology: Topology

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, params: bytes) -> "Address":
        try:
            fields = json.loads(params)
            place = fields["topology"]
            topology = Topology(**{**place, "transports": tuple(place["transports"])})
            return cls(str(fields["host"]), int(fields["port"]), topology)
        except (ValueError, KeyError, TypeError) as error:
            message = f"not a simulated engine's parameters: {error!r}"
            raise FaultError(Fault(FaultKind.PAIR_INCOMPATIBLE, message)) from None
