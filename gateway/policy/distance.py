"""How far apart two workers are, by what they say of where they stand (R-35). Pure."""

from enum import IntEnum

from proto.worker import Topology


class Distance(IntEnum):
    """By the narrowest place that they share."""

    DOMAIN = 0  # an NVLink domain
    NODE = 1
    RACK = 2
    APART = 3  # nothing that is known

    @property
    def word(self) -> str:
        return self.name.lower()


def placed(one: Topology) -> bool:
    """Whether somebody has said where it stands. The NVLink domain alone is found out, and links show it already."""
    return bool(one.node or one.rack)


def distance(one: Topology, other: Topology) -> Distance:
    """APART wherever one of them does not say, so that nobody is near for want of words."""
    if not (placed(one) and placed(other)):
        return Distance.APART
    shared = (
        (Distance.DOMAIN, one.nvlink_domain, other.nvlink_domain),
        (Distance.NODE, one.node, other.node),
        (Distance.RACK, one.rack, other.rack),
    )
    return next((step for step, mine, theirs in shared if mine and mine == theirs), Distance.APART)
