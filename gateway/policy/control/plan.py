"""What is known and decided of one prompt before it is in line. Pure."""

from dataclasses import dataclass
from math import ceil

from gateway.policy.control.classes import Klass
from gateway.policy.control.terms import Terms
from gateway.policy.estimate import LEVELS, Estimate, Features, LengthModel, growth_tokens
from gateway.policy.need import Need
from gateway.policy_config import Rule

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
    `kin`: the number of its class of lengths. `generated_tokens`: of an answer that goes on somewhere; they count to the prompt
    in `need`, while `lengths` and `limit_tokens` stay those of the whole answer."""

    features: Features
    klass: Klass
    answers: int
    need: Need
    estimate: Estimate
    limit_tokens: int
    lengths: tuple[int, ...]
    terms: Terms
    kin: int = 0
    generated_tokens: int = 0

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


def planned(asked: Asked, terms: Terms, model: LengthModel, default_output_tokens: int) -> Plan:
    """The class of a prompt, how long its answers may become, and what that asks of a worker.

    `default_output_tokens`: counted where no limit was declared.
    """
    features = asked.features
    klass = terms.classes.pick(features.tenant, features.effort)
    need = needed(
        features.prompt_tokens,
        asked.answers,
        asked.limit_tokens,
        declared=asked.declared,
        default_output_tokens=default_output_tokens,
        window=asked.window,
        kv_tokens=asked.kv_tokens,
    )
    limit = asked.limit_tokens
    if not asked.declared:
        # Of itself an answer is never expected to be longer than the largest worker could hold.
        limit = max(1, min(limit, asked.kv_tokens - features.prompt_tokens - 1))
    estimate = model.estimate(features, limit)
    if terms.headroom:
        estimate = estimate.scaled(model.headroom(features))
    likely, lengths = 0, tuple[int, ...]()
    if terms.rule is Rule.FORECAST:
        likely = asked.answers * likely_growth(estimate, features.prompt_tokens)
        likely = min(likely, need.growth_tokens) if asked.declared else likely
        lengths = tuple(estimate.lengths.tolist())
    expected = asked.answers * estimate.mean
    need = Need(need.prompt_tokens, need.growth_tokens, need.answers, likely, expected)
    return Plan(features, klass, asked.answers, need, estimate, limit, lengths, terms, model.number(features))


def needed(
    prompt_tokens: int,
    answers: int,
    max_tokens: int,
    *,
    declared: bool,
    default_output_tokens: int,
    window: int,
    kv_tokens: int,
) -> Need:
    """What to reserve for one prompt. An estimate never asks for more than the largest worker's `kv_tokens` hold."""
    growth = growth_tokens(
        answers, max_tokens if declared else None, min(default_output_tokens, max_tokens), window, prompt_tokens
    )
    if not declared:
        growth = max(answers, min(growth, kv_tokens - prompt_tokens))
    return Need(prompt_tokens, growth, answers)
