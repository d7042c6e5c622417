"""Where an engine can be reached by its peers: what tickets and hand-shakes carry as opaque parameters."""

import json
from dataclasses import asdict, dataclass, fields

from proto.fault import Fault, FaultError, FaultKind
from proto.worker import Topology

_PLACE = tuple(field.name for field in fields(Topology))


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine's side channel listens, and where the engine sits; travels as the opaque parameters."""

    host: str
    port: int
    topology: Topology

    def encode(self) -> bytes:
        """What is unknown of the place is left out: an engine of before there was a word for it would refuse the word."""
        told = asdict(self)
        told["topology"] = {name: value for name, value in told["topology"].items() if value}
        return json.dumps(told, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, params: bytes) -> "Address":
        """A newer engine may say more of its place than this one knows."""
        try:
            told = json.loads(params)
            place = {name: told["topology"][name] for name in _PLACE if name in told["topology"]}
            topology = Topology(**{**place, "transports": tuple(place["transports"])})
            return cls(str(told["host"]), int(told["port"]), topology)
        except (ValueError, KeyError, TypeError) as error:
            message = f"not a simulated engine's parameters: {error!r}"
            raise FaultError(Fault(FaultKind.PAIR_INCOMPATIBLE, message)) from None
