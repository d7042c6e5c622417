"""Hardware other than the tables say: what a what-if or a marginal value changes, and nothing else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.simulated.cost import Link, PrefillChunk, Profile, StepCost, StepTime
from engine.simulated.cost.models import SHAPES
from engine.simulated.cost.step_cost import steps_within

#: Links that do not leave a node.
_INSIDE = frozenset({"nvlink", "shm"})


@dataclass(frozen=True, slots=True)
class Changes:
    """Factors on the hardware; 1 is as in the table. `scale_up` is the link that ranks exchange over, and KV inside a
    node; `scale_out` the one between nodes; `kv_link` KV alone, over any link."""

    hbm: float = 1.0
    compute: float = 1.0
    bandwidth: float = 1.0
    scale_up: float = 1.0
    scale_out: float = 1.0
    kv_link: float = 1.0
    kv_fp8: bool = False

    def apply(self, profile: Profile) -> Profile:
        """All but `hbm`, which the profile is loaded with. Raises ValueError where FP8 KV cannot be had."""
        if self.kv_fp8:
            profile = _with_fp8(profile)
        if (self.compute, self.bandwidth, self.scale_up) != (1.0, 1.0, 1.0):
            profile = replace(profile, cost=FasterCost(profile.cost, self.compute, self.bandwidth, self.scale_up))
        if (self.scale_up, self.scale_out, self.kv_link) != (1.0, 1.0, 1.0):
            profile = replace(profile, links={name: self._link(name, link) for name, link in profile.links.items()})
        return profile

    def _link(self, name: str, link: Link) -> Link:
        faster = self.kv_link * (self.scale_up if name in _INSIDE else self.scale_out)
        return replace(link, bytes_per_s=link.bytes_per_s * faster)


#: What one factor changes, by its word in a what-if. Which link is meant depends on the question.
BY_FACTOR: Mapping[str, Callable[[Changes, float], Changes]] = {
    "hbm": lambda changes, factor: replace(changes, hbm=factor),
    "bandwidth": lambda changes, factor: replace(changes, bandwidth=factor),
    "compute": lambda changes, factor: replace(changes, compute=factor),
}


class FasterCost:
    """A StepCost with arithmetic, memory traffic and exchange between ranks each sped up by a factor; host time is not."""

    def __init__(self, cost: StepCost, compute: float, memory: float, collective: float) -> None:
        self._cost, self._compute, self._memory, self._collective = cost, compute, memory, collective

    def step_s(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> float:
        return self.breakdown(decode_batch, decode_context_tokens, prefill_chunks).total_s

    def breakdown(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> StepTime:
        was = self._cost.breakdown(decode_batch, decode_context_tokens, prefill_chunks)
        return StepTime(
            was.compute_s / self._compute,
            was.memory_s / self._memory,
            was.collective_s / self._collective,
            was.overhead_s,
        )

    def decode_run_s(self, batch: int, context_tokens: int, steps: int) -> float:
        """Only the memory part of a decode step grows with context, so what a run has above its first step scales so."""
        if batch <= 0 or steps <= 0:
            return 0.0
        above = self._cost.decode_run_s(batch, context_tokens, steps) - steps * self._cost.step_s(batch, context_tokens)
        return steps * self.step_s(batch, context_tokens) + above / self._memory

    def decode_steps_within(self, batch: int, context_tokens: int, seconds: float) -> int:
        if batch <= 0 or seconds <= 0.0:
            return 0
        return steps_within(self, batch, context_tokens, seconds)


def _with_fp8(profile: Profile) -> Profile:
    """Half the bytes a token, so twice the tokens. Attention keeps its time: the tables know none for FP8."""
    if profile.model not in SHAPES or SHAPES[profile.model].kv_dtype == "fp8":
        raise ValueError(f"kv=fp8: {profile.model} has no 16-bit KV that a table describes")
    blocks = profile.blocks_total * 2
    return replace(
        profile,
        dtype="fp8",
        blocks_total=blocks,
        kv_bytes_per_token=profile.kv_bytes_per_token // 2,
        max_model_len=min(SHAPES[profile.model].max_model_len, blocks * profile.block_size_tokens),
    )
