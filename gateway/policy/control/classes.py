"""Which class a request belongs to, and what its class was promised. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from gateway.policy.admission.overrun import OverrunPolicy, Response
from gateway.policy.fairness.budget import FairBounds
from gateway.policy.fairness.claim import Band
from gateway.policy_config import BandName, ClassPolicy, Overrun, PolicyConfig

DEFAULT = "default"

_BANDS = {BandName.HIGH: Band.HIGH, BandName.NORMAL: Band.NORMAL, BandName.LOW: Band.LOW}
_RESPONSES = {Overrun.CAP: Response.CAP, Overrun.MOVE: Response.MOVE}


@dataclass(frozen=True, slots=True)
class Klass:
    """`ttft_s` None: nothing is promised. `queue_s` None: it waits as long as any."""

    name: str = DEFAULT
    band: Band = Band.NORMAL
    weight: float = 1.0
    ttft_s: float | None = None
    queue_s: float | None = None
    overrun: OverrunPolicy = field(default_factory=lambda: OverrunPolicy((Response.MOVE,)))
    bounds: FairBounds = field(default_factory=FairBounds)
    tenants: frozenset[str] = frozenset()
    efforts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, name: str, config: ClassPolicy) -> Self:
        return cls(
            name,
            _BANDS[config.band],
            config.weight,
            config.ttft_s,
            config.queue_s,
            OverrunPolicy(tuple(_RESPONSES[one] for one in config.on_overrun), config.cap_tokens),
            FairBounds(config.incomplete_share, config.slowdown, config.slow_share, config.abandoned_share),
            frozenset(config.tenants),
            frozenset(config.efforts),
        )

    def takes(self, tenant: str, effort: str) -> bool:
        return (not self.tenants or tenant in self.tenants) and (not self.efforts or effort in self.efforts)


@dataclass(frozen=True, slots=True)
class Classes:
    """In order; whatever none of them takes belongs to the default class."""

    ordered: tuple[Klass, ...] = ()
    default: Klass = field(default_factory=Klass)

    @classmethod
    def of(cls, config: PolicyConfig) -> Self:
        """A class by the name of the default one takes what the others leave, wherever it stands."""
        classes = {name: Klass.of(name, each) for name, each in config.classes.items()}
        default = classes.pop(DEFAULT, Klass())
        return cls(tuple(classes.values()), default)

    def pick(self, tenant: str, effort: str) -> Klass:
        return next((klass for klass in self.ordered if klass.takes(tenant, effort)), self.default)

    def __iter__(self) -> Iterator[Klass]:
        yield from self.ordered
        yield self.default

    @property
    def by_name(self) -> Mapping[str, Klass]:
        return {klass.name: klass for klass in self}
