"""A layout that could be built: pools of equal engines and the knobs of the gateway that matter."""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from urllib.parse import urlencode

from engine.simulated.cost import DoesNotFitError, Profile, UnknownProfileError, load_budget, load_profile
from engine.simulated.cost.catalog import table_of
from engine.simulated.cost.pipeline import pipelined
from engine.simulated.cost.request import parse_request
from gateway.config import GatewayConfig, RoutingConfig
from loadgen.bound import Pool as BoundPool
from loadgen.bound import Role as BoundRole
from loadgen.plan.changes import Changes
from loadgen.simulate import Layout, Pool
from loadgen.simulate.layout import GPUS_PER_NODE
from proto.worker import Role

#: Prompts with fewer uncached tokens than this stay on the decode worker: the gateway's own default.
HAND_OFF_FROM = RoutingConfig().local_prefill_below_tokens
UNCHANGED = Changes()
WORKER_NAMES = {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.BOTH: "colocated"}


class Family(StrEnum):
    COLOCATED = "colocated"
    DISAGGREGATED = "disaggregated"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, order=True)
class Engine:
    """One worker. `profile` is a table and its memory options, such as `h200-sxm/qwen3-32b?gib=96`."""

    profile: str
    tp: int = 1
    pp: int = 1
    ep: int = 1
    tokens: int = 8192
    seqs: int = 256

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    @property
    def device(self) -> str:
        """The kind of GPU with its options, without the model."""
        asked = parse_request(self.profile)
        device = asked.name.partition("/")[0] if asked.file is None else table_of(self.profile).device
        return "?".join([device, *(["&".join(asked.kept)] if asked.kept else [])])

    @property
    def degrees(self) -> str:
        parts = [f"{name}{n}" for name, n in (("TP", self.tp), ("PP", self.pp), ("EP", self.ep)) if n > 1]
        return "·".join(parts) or "TP1"

    def words(self, hbm: float = 1.0) -> str:
        """The profile's whole name, with everything said."""
        asked = parse_request(self.profile)
        degrees = urlencode({"tp": self.tp, "pp": self.pp, "ep": self.ep})
        words = [degrees, f"tokens={self.tokens}&seqs={self.seqs}", *asked.kept]
        if hbm != 1.0:  # what is said last goes
            gib = asked.gib or load_budget("&".join([f"{asked.name}?{degrees}", *asked.kept])).gpu_bytes / 2**30
            words.append(f"gib={gib * hbm}")
        return f"{asked.name}?{'&'.join(words)}"

    def load(self, changes: Changes = UNCHANGED) -> Profile:
        """Raises DoesNotFitError, UnknownProfileError, ValueError."""
        return _loaded(self, changes)

    @property
    def fits(self) -> bool:
        """Whether there is a table for these degrees and room for KV."""
        try:
            self.load()
        except (DoesNotFitError, UnknownProfileError):
            return False
        return True


@lru_cache(maxsize=512)
def _loaded(engine: Engine, changes: Changes) -> Profile:
    # A full pipeline is what an engine with stages runs at, see engine.simulated.cost.pipeline.
    return changes.apply(pipelined(load_profile(engine.words(changes.hbm))))


@dataclass(frozen=True, slots=True, order=True)
class Part:
    role: Role
    workers: int
    engine: Engine

    @property
    def gpus(self) -> int:
        return self.workers * self.engine.gpus


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """`local_below` is the gateway's threshold for prefill on the decode worker, in uncached prompt tokens."""

    parts: tuple[Part, ...]
    local_below: int = HAND_OFF_FROM

    @property
    def gpus(self) -> int:
        return sum(part.gpus for part in self.parts)

    @property
    def family(self) -> Family:
        roles = {part.role for part in self.parts}
        if roles == {Role.BOTH}:
            return Family.COLOCATED
        return Family.MIXED if Role.BOTH in roles else Family.DISAGGREGATED

    @property
    def label(self) -> str:
        kinds = {part.engine.profile for part in self.parts}
        letters = {Role.PREFILL: "P", Role.DECODE: "D", Role.BOTH: "C"}
        words = []
        for part in self.parts:
            kind = f" on {part.engine.device}" if len(kinds) > 1 else ""
            budget = "" if part.role is Role.DECODE else f"/{part.engine.tokens}"
            words.append(f"{part.workers}{letters[part.role]} {part.engine.degrees}{budget}{kind}")
        local = f", local <{self.local_below}" if self.local_below != HAND_OFF_FROM else ""
        return " + ".join(words) + local

    def layout(
        self,
        changes: Changes = UNCHANGED,
        client_timeout_s: float = 600.0,
        *,
        gaps: bool = True,
        gpus_per_node: int = GPUS_PER_NODE,
    ) -> Layout:
        pools = tuple(Pool.of(p.role, p.workers, p.engine.load(changes)) for p in self.parts)
        routing = RoutingConfig(local_prefill_below_tokens=self.local_below)
        config = GatewayConfig(routing=routing)
        return Layout(
            pools,
            gateway=config,
            words=self.label,
            client_timeout_s=client_timeout_s,
            gaps=gaps,
            gpus_per_node=gpus_per_node,
        )

    def bound_pools(self, changes: Changes = UNCHANGED) -> list[BoundPool]:
        """One link, and the fastest, so that the bound stays one."""
        return [
            BoundPool(p.engine.load(changes), p.workers, BoundRole(p.role.value), _fastest(p.engine.load(changes)))
            for p in self.parts
        ]


def _fastest(profile: Profile) -> str:
    return max(profile.links, key=lambda name: profile.links[name].bytes_per_s, default="")
