"""Everything that can be set on the length model, and what each setting trades (docs/length-model.md)."""

from dataclasses import dataclass, field

from gateway.policy.estimate.prior import Prior


@dataclass(frozen=True, slots=True)
class DriftKnobs:
    slack: float = 0.5
    threshold: float = 12.0
    after_observations: float = 50.0
    remember: int = 64
    keep_observations: float = 5.0
    quick_observations: int = 200
    quick_factor: float = 0.25

    def __post_init__(self) -> None:
        if self.slack <= 0 or self.threshold <= 0 or self.remember < 1 or not 0 < self.quick_factor <= 1:
            raise ValueError(f"drift knobs out of range: {self}")


@dataclass(frozen=True, slots=True)
class Knobs:
    prior: Prior = field(default_factory=Prior)
    model_priors: tuple[tuple[str, Prior], ...] = ()
    accuracy: float = 0.02
    longest_tokens: int = 1 << 17
    half_life_observations: float = 1000.0
    half_life_s: float = 6 * 3600.0
    shrink_observations: float = 20.0
    prompt_edges: tuple[int, ...] = tuple(round(64 * 2 ** (step / 2)) for step in range(20))
    reasoning_share: float = 0.7
    max_classes: int = 4096
    idle_s: float = 24 * 3600.0
    refresh_share: float = 0.02
    refresh_s: float = 5.0
    drift: DriftKnobs = field(default_factory=DriftKnobs)
    target_quantile: float = 0.9
    headroom_half_life_observations: float = 100.0
    headroom_max: float = 8.0

    def __post_init__(self) -> None:
        if not 0 < self.accuracy < 0.2 or self.longest_tokens < 2:
            raise ValueError(f"accuracy must lie in (0, 0.2) and longest_tokens above 1: {self}")
        if min(self.half_life_observations, self.half_life_s, self.headroom_half_life_observations) <= 0:
            raise ValueError("half-lives must be positive")
        if self.shrink_observations <= 0 or self.max_classes < 8:
            raise ValueError("shrink_observations must be positive and max_classes at least 8")
        if list(self.prompt_edges) != sorted(set(self.prompt_edges)):
            raise ValueError("prompt_edges must ascend")
        if not 0 < self.target_quantile < 1 or self.headroom_max < 1 or not 0 <= self.reasoning_share <= 1:
            raise ValueError("target_quantile, headroom_max or reasoning_share out of range")
