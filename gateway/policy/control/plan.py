"""What is known and decided of one prompt before it is in line. Pure."""

from dataclasses import dataclass
from math import ceil

from gateway.policy.control.classes import Klass
from gateway.policy.control.terms import Terms
from gateway.policy.estimate import LEVELS, Estimate, Features
from gateway.policy.routing import Need

#: The share of answers that are still there at each level of an estimate.
_ALIVE = 1.0 - LEVELS


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt of a request. `limit_tokens`: no answer to it gets longer; `declared` says whether the client said so.

    `window`, `kv_tokens`: of the largest decode worker.
    """

    features: Features
    answers: int
    limit_tokens: int
    declared: bool
    window: int
    kv_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`lengths`: what a Reserve tells the worker, empty where growth is reserved in full. `output_tokens`: expected of
    all answers together. `terms`: of the version that it was made under, to the end of the request.
    `kin`: the number of its class of lengths."""

    features: Features
    klass: Klass
    answers: int
    need: Need
    estimate: Estimate
    limit_tokens: int
    lengths: tuple[int, ...]
    terms: Terms
    kin: int = 0

    @property
    def output_tokens(self) -> float:
        return self.need.expected_tokens

    @property
    def tokens(self) -> float:
        """Prompt and expected answers."""
        return self.features.prompt_tokens + self.output_tokens


def likely_growth(estimate: Estimate, prompt_tokens: int) -> int:
    """Tokens beyond the prompt that one answer takes of a worker's future, at the step at which it takes most.

    At each step it holds what it has with the chance that it is still there; the mean of that peaks long before the
    longest answer ends. At least one token.
    """
    held = _ALIVE * (prompt_tokens + estimate.lengths)
    return max(1, ceil(float(held[held.argmax()])) - prompt_tokens)
