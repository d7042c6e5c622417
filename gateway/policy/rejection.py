"""Whether a prompt is refused before it is computed. Pure: decisions from a forecast (R-14, R-15).

After Mooncake (arXiv 2407.00079): decode is judged before the prompt is computed, by its load at the time when the
prefill will have ended. docs/early-rejection.md compares that with judging each stage when it begins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Protocol

#: Steps at which the forecast is asked for room, before the moment is narrowed down.
HORIZON_STEPS = 32
NARROWINGS = 16


class RejectReason(StrEnum):
    """The value is that of the refusal."""

    TTFT = "ttft_unreachable"
    DECODE = "decode_overloaded"


class Forecast(Protocol):
    """What is expected for one prompt, were it accepted now. Times in s from now.

    `decode_load_at` is the share of decode capacity that everything accepted so far will need then, prompts still in
    queue or prefill included; the prompt in question is not.
    """

    @property
    def predicted_ttft_s(self) -> float: ...

    def decode_load_at(self, t_s: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """`decode_load` is the share of decode capacity that the prompt itself will need; `ttft_s` what it was promised."""

    ttft_s: float = inf
    decode_load: float = 0.0


@dataclass(frozen=True, slots=True)
class Accept:
    """`numbers` as in a refusal, so that both can be explained."""

    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Reject:
    """`retry_after_s` is when the same prompt would be accepted if nothing else came; at most the horizon."""

    reason: RejectReason
    retry_after_s: float
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Bounds:
    """`decode_load`: the most that decode may be loaded with; below 1 it leaves headroom. `ttft_margin`: the promise
    times this is what the prediction must keep. `Retry-After` lies between `retry_min_s` and `horizon_s`."""

    decode_load: float = 1.0
    ttft_margin: float = 1.0
    retry_min_s: float = 1.0
    horizon_s: float = 60.0

    def __post_init__(self) -> None:
        if self.decode_load <= 0 or self.ttft_margin <= 0 or not 0 <= self.retry_min_s <= self.horizon_s:
            raise ValueError("bounds must be greater than 0, and retry_min_s at most horizon_s")


@dataclass(frozen=True, slots=True)
class EarlyRejection:
    """Both stages are checked before the first, decode at the end of the prefill."""

    bounds: Bounds = Bounds()

    def before_prefill(self, ask: Ask, forecast: Forecast) -> Accept | Reject:
        return longest(
            judge_ttft(self.bounds, ask, forecast),
            judge_decode(self.bounds, ask, forecast, forecast.predicted_ttft_s),
        )


def longest(*verdicts: Accept | Reject) -> Accept | Reject:
    """A request refused for one reason must not come back too early for the other, so the longer wait counts."""
    refusals = [verdict for verdict in verdicts if isinstance(verdict, Reject)]
    return max(refusals, key=lambda refusal: refusal.retry_after_s) if refusals else verdicts[-1]


def judge_ttft(bounds: Bounds, ask: Ask, forecast: Forecast) -> Accept | Reject:
    """Whether the first token can come as promised."""
    late_s = forecast.predicted_ttft_s - ask.ttft_s * bounds.ttft_margin
    numbers = _numbers(bounds, ask, forecast, forecast.predicted_ttft_s)
    if late_s <= 0:
        return Accept(numbers)
    # The queue before it drains by one second a second.
    return Reject(RejectReason.TTFT, _clamp(bounds, late_s), numbers)


def judge_decode(bounds: Bounds, ask: Ask, forecast: Forecast, at_s: float) -> Accept | Reject:
    """Whether decode has room for the prompt `at_s` from now."""
    numbers = _numbers(bounds, ask, forecast, at_s)
    if forecast.decode_load_at(at_s) + ask.decode_load <= bounds.decode_load:
        return Accept(numbers)
    return Reject(RejectReason.DECODE, _clamp(bounds, _room_after_s(bounds, ask, forecast, at_s)), numbers)


def _numbers(bounds: Bounds, ask: Ask, forecast: Forecast, at_s: float) -> dict[str, float]:
    numbers = {
        "predicted_ttft_s": forecast.predicted_ttft_s,
        "promised_ttft_s": ask.ttft_s,
        "decode_load": forecast.decode_load_at(at_s),
        "decode_load_at_s": at_s,
        "decode_load_asked": ask.decode_load,
        "decode_load_limit": bounds.decode_load,
    }
    return {name: number for name, number in numbers.items() if number < inf}


def _room_after_s(bounds: Bounds, ask: Ask, forecast: Forecast, at_s: float) -> float:
    """How much later the load, `at_s` after that moment, leaves room. The horizon when it does not before."""

    def fits(later_s: float) -> bool:
        return forecast.decode_load_at(at_s + later_s) + ask.decode_load <= bounds.decode_load

    step_s = bounds.horizon_s / HORIZON_STEPS
    late = next((step for step in range(1, HORIZON_STEPS + 1) if fits(step * step_s)), None)
    if late is None:
        return bounds.horizon_s
    low_s, high_s = (late - 1) * step_s, late * step_s
    for _ in range(NARROWINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if fits(middle_s) else (middle_s, high_s)
    return high_s


def _clamp(bounds: Bounds, wait_s: float) -> float:
    return min(bounds.horizon_s, max(bounds.retry_min_s, wait_s))
