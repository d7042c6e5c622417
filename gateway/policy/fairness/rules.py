"""The knobs of the fair queue."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from gateway.policy.fairness.claim import Claim


@dataclass(frozen=True, slots=True)
class FairRules:
    """Who counts for how much, and how far a request may be overtaken.

    `shares`: whether classes and tenants have shares of their own; otherwise all of a band stand in one line.
    `prompt_weight`, `output_weight`: what one token costs, in units of service (VTC, arXiv 2401.00588: 1 and 2).
    `classes`, `tenants`: weights of shares; unlisted ones weigh 1.
    `stretch`: a request is served by the time its tenant has received `stretch` times the service that would have
    come before it, first come first served, its own included, and one request more. 1 is first come, first served;
    infinite is shortest first with no bound.
    `band_share`: what a waiting lower band earns of the service given to the bands above it. 0 lets it starve.
    `long_above_tokens`, `long_class`: prompts expected to hold more KV go to a class of their own (R-06).
    `give_up_early`: whether a prompt that can no longer keep its promise lapses before its deadline.
    """

    shares: bool = True
    prompt_weight: float = 1.0
    output_weight: float = 2.0
    classes: Mapping[str, float] = field(default_factory=dict)
    tenants: Mapping[str, float] = field(default_factory=dict)
    stretch: float = 3.0
    band_share: float = 0.1
    long_above_tokens: float = inf
    long_class: str = "long"
    give_up_early: bool = False

    def __post_init__(self) -> None:
        if self.prompt_weight < 0 or self.output_weight < 0 or self.prompt_weight + self.output_weight <= 0:
            raise ValueError("prompt_weight and output_weight must not be negative, and one of them not 0")
        if self.stretch < 1:
            raise ValueError("stretch must be 1 or more")
        if not 0 <= self.band_share < 1:
            raise ValueError("band_share must be in [0, 1)")
        if any(weight <= 0 for weights in (self.classes, self.tenants) for weight in weights.values()):
            raise ValueError("weights must be greater than 0")

    def cost(self, prompt_tokens: float, output_tokens: float) -> float:
        """Units of service."""
        return self.prompt_weight * prompt_tokens + self.output_weight * output_tokens

    def cost_of(self, claim: Claim) -> float:
        """Of the whole request as expected; one unit at least, so that nobody queues for nothing."""
        return max(1.0, self.cost(claim.prompt_tokens, claim.expected_output_tokens))

    def tenant_of(self, claim: Claim) -> str:
        return claim.tenant if self.shares else ""

    def class_of(self, claim: Claim) -> str:
        if not self.shares:
            return ""
        is_long = claim.prompt_tokens + claim.expected_output_tokens > self.long_above_tokens
        return self.long_class if is_long else claim.klass

    def class_weight(self, klass: str) -> float:
        return self.classes.get(klass, 1.0)

    def tenant_weight(self, tenant: str) -> float:
        return self.tenants.get(tenant, 1.0)

    def lapse_s(self, claim: Claim) -> float:
        """When waiting on becomes pointless."""
        return min(claim.deadline_s, claim.latest_start_s) if self.give_up_early else claim.deadline_s


#: The queue policies by name (R-21). Each may be varied with `dataclasses.replace`.
POLICIES: Mapping[str, FairRules] = {
    "fcfs": FairRules(shares=False, stretch=1.0),
    "shortest-first": FairRules(shares=False, stretch=inf),
    "fair": FairRules(),
}
