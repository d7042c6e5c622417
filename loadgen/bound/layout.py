"""What a bound must know of a layout: groups of equal engines and what they may do."""

from dataclasses import dataclass
from enum import StrEnum

from engine.simulated.cost import Profile


class Role(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Pool:
    """`engines` of one profile. `link` names the transport on which KV leaves and enters ("" for no limit).

    A decode pool may compute prompts itself when `local_prefill` is set, as a conditional split does.
    """

    profile: Profile
    engines: int
    role: Role = Role.BOTH
    link: str = ""
    local_prefill: bool = True

    @property
    def prefills(self) -> bool:
        return self.role is not Role.DECODE or self.local_prefill

    @property
    def decodes(self) -> bool:
        return self.role is not Role.PREFILL

    @property
    def link_bytes_per_s(self) -> float:
        """Of all engines together, one copy of the KV."""
        if not self.link or self.link not in self.profile.links:
            return float("inf")
        return self.engines * self.profile.links[self.link].bytes_per_s
