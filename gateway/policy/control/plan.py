"""What is known and decided of one prompt before it is in line. Pure."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from gateway.policy.control.classes import Klass
from gateway.policy.control.terms import Terms
from gateway.policy.estimate import LEVELS, Estimate, Features, LengthModel, growth_tokens
from gateway.policy.need import Need
from gateway.policy_config import Rule

#: The share of answers that are still there at each level of an estimate.
_ALIVE: list[float] = (1.0 - LEVELS).tolist()


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


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is read off an estimate: its mean, `lengths` as plain numbers, and the `levels` (share that is still there,
    length) at which a prompt and its answer may hold most."""

    estimate: Estimate
    mean: float
    lengths: tuple[int, ...]
    levels: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, estimate: Estimate) -> "_Reading":
        lengths = tuple(estimate.lengths.tolist())
        levels, most = [], -1.0
        for alive, length in zip(_ALIVE, lengths, strict=True):
            # Where a level before it holds no less of the answer, it holds no less of the prompt either.
            if alive * length > most:
                levels.append((alive, length))
                most = alive * length
        return cls(estimate, estimate.mean, lengths, tuple(levels))

    def likely_growth(self, prompt_tokens: int) -> int:
        most = max([alive * (prompt_tokens + length) for alive, length in self.levels])
        return max(1, ceil(most) - prompt_tokens)


@lru_cache(maxsize=1024)  # requests of one class have the same one until the next answer is learnt
def _capped(whole: Estimate, limit_tokens: int) -> _Reading:
    return _Reading.of(whole.capped(limit_tokens))


def likely_growth(estimate: Estimate, prompt_tokens: int) -> int:
    """Tokens beyond the prompt that one answer takes of a worker's future, at the step at which it takes most.

    At each step it holds what it has with the chance that it is still there; the mean of that peaks long before the
    longest answer ends. At least one token.
    """
    return _Reading.of(estimate).likely_growth(prompt_tokens)


def foreseen(features: Features, limit_tokens: int, model: LengthModel) -> None:
    """After an answer was learnt: the next request of its kind finds read off what it will ask for."""
    if model.predictor is None:  # which has another estimate for each
        _capped(model.estimate(features), limit_tokens)


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
    read = _capped(model.estimate(features), limit)
    if terms.headroom:
        read = _Reading.of(read.estimate.scaled(model.headroom(features)))
    likely, lengths = 0, tuple[int, ...]()
    if terms.rule is Rule.FORECAST:
        lengths = read.lengths
        likely = asked.answers * read.likely_growth(features.prompt_tokens)
        likely = min(likely, need.growth_tokens) if asked.declared else likely
    need = Need(need.prompt_tokens, need.growth_tokens, need.answers, likely, asked.answers * read.mean)
    return Plan(features, klass, asked.answers, need, read.estimate, limit, lengths, terms, model.number(features))


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
