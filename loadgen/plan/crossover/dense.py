"""Dense models of any size between two of the tables, with what a table would say of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from engine.simulated.cost import HbmBudget, PrefillChunk, Profile, StepCost, StepTime, load_budget, load_profile
from engine.simulated.cost.models import BYTES, SHAPES
from engine.simulated.cost.request import ProfileRequest, parse_request
from engine.simulated.cost.step_cost import steps_within
from loadgen.failure import LoadgenError
from loadgen.plan.crossover.variant import Variant

#: One table a size.
_TABLES = (
    "llama-3.1-8b", "deepseek-r1-distill-qwen-14b", "deepseek-r1-distill-qwen-32b", "llama-3.1-70b", "llama-3.1-405b",
)  # fmt: skip
#: So much memory that every model fits: asks for what a layout uses, not for what is left.
_BOUNDLESS = "gib=65536"


@dataclass(frozen=True, slots=True)
class Dense:
    """A model of `billions` of parameters: `share` of the way from one table (`lower`) to the next (`upper`)."""

    billions: float
    lower: str
    upper: str
    share: float

    @property
    def grade(self) -> str:
        """Where its figures come from."""
        if self.share in (0.0, 1.0):
            return f"table {_short(self.upper if self.share else self.lower)}"
        return f"between {_short(self.lower)} and {_short(self.upper)}"

    def engine(self, tp: int, variant: Variant, max_num_seqs: int) -> Profile | None:
        """None where its weights leave no room for KV."""
        lower, upper = (_half(name, tp) for name in (self.lower, self.upper))
        profile, size = lower.profile, lower.profile.block_size_tokens
        used = self._between(lower.reserved_bytes, upper.reserved_bytes)
        used += self._between(lower.weights_bytes, upper.weights_bytes) * variant.weights
        per_token = self._between(lower.kv_bytes, upper.kv_bytes) * variant.kv
        limit = min(lower.limit_bytes, upper.limit_bytes) * variant.changes.hbm
        blocks = int((limit - used) / (per_token * size))
        if blocks < 1:
            return None
        return variant.changes.apply(
            replace(
                profile,
                name=f"dense {self.billions:.4g}B tp={tp}",
                blocks_total=blocks,
                max_num_seqs=max_num_seqs,
                kv_bytes_per_token=round(
                    self._between(profile.kv_bytes_per_token, upper.profile.kv_bytes_per_token) * variant.kv
                ),
                cost=Between(profile.cost, upper.profile.cost, self.share),
            )
        )

    def _between(self, lower: float, upper: float) -> float:
        return lower + self.share * (upper - lower)


class Between:
    """The cost of a step that lies between those of two models. Costs add up, so runs of steps have a closed form, too."""

    def __init__(self, lower: StepCost, upper: StepCost, share: float) -> None:
        self._lower, self._upper, self._share = lower, upper, share

    def step_s(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> float:
        asked = decode_batch, decode_context_tokens, prefill_chunks
        return self._mixed(self._lower.step_s(*asked), self._upper.step_s(*asked))

    def breakdown(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> StepTime:
        asked = decode_batch, decode_context_tokens, prefill_chunks
        lower, upper = self._lower.breakdown(*asked), self._upper.breakdown(*asked)
        return StepTime(
            self._mixed(lower.compute_s, upper.compute_s),
            self._mixed(lower.memory_s, upper.memory_s),
            self._mixed(lower.collective_s, upper.collective_s),
            self._mixed(lower.overhead_s, upper.overhead_s),
        )

    def decode_run_s(self, batch: int, context_tokens: int, steps: int) -> float:
        asked = batch, context_tokens, steps
        return self._mixed(self._lower.decode_run_s(*asked), self._upper.decode_run_s(*asked))

    def decode_steps_within(self, batch: int, context_tokens: int, seconds: float) -> int:
        return steps_within(self, batch, context_tokens, seconds) if batch > 0 else 0

    def _mixed(self, lower: float, upper: float) -> float:
        return (1 - self._share) * lower + self._share * upper


class Sizes:
    """The tables of a device in order of size, the model asked for in place of the one nearest to it."""

    def __init__(self, model: str, without: str = "") -> None:
        """`model` such as `h200-sxm/qwen3-32b?gib=96`. Raises LoadgenError for what is not on the line."""
        try:
            asked = parse_request(model)
        except ValueError as error:
            raise LoadgenError(str(error)) from None
        device, _, name = asked.name.partition("/")
        if name not in SHAPES or SHAPES[name].experts:
            raise LoadgenError(
                f"crossover: {model!r} is no dense model of a table; such as h200-sxm/qwen3-32b. "
                "Sizes of mixtures of experts are not comparable: plan those one by one"
            )
        if asked != ProfileRequest(asked.name, gib=asked.gib):
            raise LoadgenError(
                f"crossover: {model!r} may say gib=N alone; links and degrees are varied here, see --what-if"
            )
        words = f"?gib={asked.gib:g}" if asked.gib else ""
        self.model = f"{device}/{name}{words}"
        others = [f"{device}/{table}{words}" for table in _TABLES]
        own = _billions(self.model)
        nearest = min(others, key=lambda other: abs(_billions(other) / own - 1))
        tables = [self.model if other == nearest else other for other in others]
        self.tables = sorted((table for table in tables if table != without), key=_billions)
        self.billions = own

    @property
    def anchors(self) -> list[float]:
        return [_billions(table) for table in self.tables]

    def at(self, billions: float) -> Dense:
        """Raises ValueError outside the tables."""
        anchors = self.anchors
        if not anchors[0] <= billions <= anchors[-1]:
            raise ValueError(f"{billions:g}B is not between {anchors[0]:.3g}B and {anchors[-1]:.3g}B")
        place = max(i for i, anchor in enumerate(anchors[:-1]) if anchor <= billions)
        share = (billions - anchors[place]) / (anchors[place + 1] - anchors[place])
        return Dense(billions, self.tables[place], self.tables[place + 1], share)


@dataclass(frozen=True, slots=True)
class _Half:
    """What one table says of an engine: times, and the bytes of one GPU."""

    profile: Profile
    limit_bytes: int
    weights_bytes: int
    reserved_bytes: int
    kv_bytes: int


@lru_cache(maxsize=64)
def _half(name: str, tp: int) -> _Half:
    base = name.partition("?")[0]
    budget = load_budget(f"{base}?tp={tp}&ep=1&{_BOUNDLESS}")
    asked = parse_request(name)
    limit = _usable(base, asked.gib)
    return _Half(
        load_profile(f"{base}?tp={tp}&ep=1&{_BOUNDLESS}"),
        limit,
        budget.weights_bytes,
        budget.activation_bytes + budget.comm_bytes + budget.runtime_bytes,
        budget.kv_bytes_per_token,
    )


def _usable(base: str, gib: float | None) -> int:
    """Bytes of one GPU that the engine may use."""
    budget: HbmBudget = load_budget(f"{base}?tp=8" + (f"&gib={gib:g}" if gib else ""))
    return budget.limit_bytes


@lru_cache(maxsize=64)
def _billions(name: str) -> float:
    """Parameters, from the bytes of the weights."""
    base = name.partition("?")[0]
    shape = SHAPES[base.partition("/")[2]]
    return load_budget(f"{base}?tp=1&ep=1&{_BOUNDLESS}").weights_bytes / BYTES[shape.dtype] / 1e9


def _short(name: str) -> str:
    return name.partition("?")[0].partition("/")[2]
