"""Where overload is met: at each stage when it begins, or before the first; by what is, or by what will be.

The baselines after Mooncake (arXiv 2407.00079), and a conductor that asks one of them. It reserves nothing: it lets
prompts in by what it knows of those that it has let in before, and the engines see to the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gateway.policy.bid import Bid
from gateway.policy.control.forecast import prefill_s
from gateway.policy.rejection import (
    Accept,
    Ask,
    Bounds,
    EarlyRejection,
    Forecast,
    Reject,
    judge_decode,
    judge_ttft,
    longest,
)
from gateway.policy.routing import Fleet
from loadgen.simulate.flight import Flight

#: What is believed of an answer and its decode time before any has ended. The first to end are the shortest.
USUAL_TOKENS, USUAL_S = 350.0, 15.0
#: Share of the newest answer in what is believed of the next.
_SMOOTHING = 0.02


Verdict = Accept | Reject
Judge = Callable[[Bounds, Ask, Forecast], Verdict]


def _decode_now(bounds: Bounds, ask: Ask, forecast: Forecast) -> Verdict:
    return judge_decode(bounds, ask, forecast, 0.0)


def _both_now(bounds: Bounds, ask: Ask, forecast: Forecast) -> Verdict:
    return longest(judge_ttft(bounds, ask, forecast), _decode_now(bounds, ask, forecast))


def _shipped(bounds: Bounds, ask: Ask, forecast: Forecast) -> Verdict:
    return EarlyRejection(bounds).before_prefill(ask, forecast)


@dataclass(frozen=True, slots=True)
class Stages:
    """What is asked before the prompt is computed, and what before its answer is decoded."""

    before_prefill: Judge
    before_decode: Judge | None = None


#: Each stage looks at itself only; both look before the first, at decode as it is, or as it will be by then.
STAGE_WISE = Stages(judge_ttft, _decode_now)
PRESENT = Stages(_both_now)
PREDICTED = Stages(_shipped)


@dataclass(frozen=True, slots=True)
class Ahead:
    """Decode as it will be if every answer takes the usual time, `stay_s`. By request: when it reaches decode (0: it is
    there) and when it leaves, s from now, and its share of all KV.

    The load at a later moment is the most of it in one stay from then on: a short prompt, which overtakes long ones in
    prefill, meets them in decode.
    """

    predicted_ttft_s: float
    stay_s: float
    starts_s: NDArray[np.float64]
    ends_s: NDArray[np.float64]
    shares: NDArray[np.float64]

    def decode_load_at(self, t_s: float) -> float:
        if t_s <= 0:
            return float(self.shares[self.starts_s <= 0].sum())
        coming = (self.starts_s > t_s) & (self.starts_s < t_s + self.stay_s)
        moments = np.append(self.starts_s[coming], t_s)[:, None]
        there = (self.starts_s <= moments) & (moments < self.ends_s)
        return float((there @ self.shares).max())


@dataclass(slots=True)
class _Stay:
    flight: Flight
    start_s: float
    decoding: bool = False


@dataclass(slots=True)
class Conductor:
    """`kv_tokens` of all decode workers. How long answers become and take is believed to be as of late."""

    stages: Stages
    bounds: Bounds
    promise_s: float
    kv_tokens: float
    flight_of: Callable[[Bid], Flight]
    clock: Callable[[], float]
    _stays: dict[str, _Stay] = field(default_factory=dict)
    _answer_tokens: float = USUAL_TOKENS
    _answer_s: float = USUAL_S

    def objection(self, bid: Bid, fleet: Fleet, waiting: int, admitted_per_s: float) -> Reject | None:
        speed = max((worker.tokens_per_s for worker in fleet.prefills), default=0.0)
        first_s = prefill_s(bid.need, fleet, speed)
        flight = self.flight_of(bid)
        verdict = self.stages.before_prefill(self.bounds, self._ask(flight), self._ahead(first_s))
        if isinstance(verdict, Reject):
            return verdict
        self._stays[bid.request_id] = _Stay(flight, self.clock() + first_s)
        return None

    def thrown_away(self, flight: Flight) -> bool:
        judge, stay = self.stages.before_decode, self._stays[flight.bid.request_id]
        verdict = judge(self.bounds, self._ask(flight), self._ahead(0.0)) if judge else None
        stay.decoding, stay.start_s = True, self.clock()
        return isinstance(verdict, Reject)

    def _ask(self, flight: Flight) -> Ask:
        return Ask(self.promise_s, self._share(flight))

    def _share(self, flight: Flight) -> float:
        return (flight.planned.demand.prompt_tokens + self._answer_tokens) / self.kv_tokens

    def _ahead(self, first_s: float) -> Ahead:
        now_s = self.clock()
        self._forget()
        stays = list(self._stays.values())
        starts_s = [0.0 if stay.decoding else max(1e-6, stay.start_s - now_s) for stay in stays]
        ends_s = [stay.start_s + self._answer_s - now_s for stay in stays]
        shares = [self._share(stay.flight) for stay in stays]
        return Ahead(first_s, self._answer_s, np.array(starts_s), np.array(ends_s), np.array(shares))

    def _forget(self) -> None:
        for name in [name for name, stay in self._stays.items() if not stay.flight.open]:
            stay = self._stays.pop(name)
            if stay.flight.first_s is not None:
                tokens, seconds = stay.flight.output_tokens, self.clock() - stay.start_s
                self._answer_tokens += _SMOOTHING * (tokens - self._answer_tokens)
                self._answer_s += _SMOOTHING * (seconds - self._answer_s)
