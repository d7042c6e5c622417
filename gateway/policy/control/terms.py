"""What one version of the policy says of a single request, apart from what all requests share. Pure."""

import hashlib
from dataclasses import dataclass
from math import inf
from typing import Self

from gateway.policy.control.classes import Classes
from gateway.policy.rejection import Bounds, EarlyRejection
from gateway.policy_config import PolicyConfig, Rule


@dataclass(frozen=True, slots=True)
class Terms:
    """`headroom`: estimates are stretched by recent errors. `decode`: the decode load to come may refuse."""

    version: str
    rule: Rule
    classes: Classes
    headroom: bool
    decode: bool
    rejection: EarlyRejection

    @classmethod
    def of(cls, config: PolicyConfig) -> Self:
        early = config.early_rejection
        bounds = Bounds(
            early.decode_load if early.decode else inf, early.ttft_margin, early.retry_min_s, early.horizon_s
        )
        return cls(
            config.name,
            config.rule,
            Classes.of(config),
            config.lengths.headroom,
            early.decode,
            EarlyRejection(bounds),
        )

    @property
    def promises(self) -> bool:
        """Whether any class was promised a time to the first token."""
        return any(klass.ttft_s is not None for klass in self.classes)


@dataclass(frozen=True, slots=True)
class Canary:
    """A second version for a share of the requests, drawn by a hash of their ids: the same at every gateway."""

    terms: Terms
    share: float

    def takes(self, request_id: str) -> bool:
        digest = hashlib.blake2b(request_id.encode(), digest_size=8).digest()
        return int.from_bytes(digest) < self.share * 2**64
