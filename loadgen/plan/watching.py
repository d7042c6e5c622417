"""When to plan anew: what gateways tell of their traffic, against what the last plan was made for. Pure (R-63)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadgen.plan.shift import Pace, RateShift, Shift, length_shifts
from loadgen.workload.observed import LEAST, Observed

#: Of a drift event: the gateway that tells it, the class of requests, and the way that it went.
_Kind = tuple[str, tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """`interval_s`: at most one plan in that time. `every_s`: how often rates and distributions are compared where no drift
    is told: drifts are of answers, and prompts or the rate may change alone. Those of that time, and of the time before
    where too few came. `least`: requests of the new traffic that a plan is made from. `rate_change`: what counts as one."""

    interval_s: float = 900.0
    every_s: float = 300.0
    least: int = 300
    rate_change: float = 0.25

    def __post_init__(self) -> None:
        if self.least < LEAST:
            raise ValueError(f"a plan needs at least {LEAST} requests")


@dataclass(frozen=True, slots=True)
class Cause:
    """`drift`: events, in words. `shift`: since the last plan, or since the watch began; None where nothing is known of
    then, or while it is yet to be looked at. `within_s`: the new traffic is so old at most."""

    drift: str = ""
    shift: Shift | None = None
    within_s: float | None = None

    @property
    def text(self) -> str:
        """What has changed, and by how much: lengths, rate, or both."""
        lengths = "; ".join(filter(None, (self.drift, *map(str, self.shift.lengths if self.shift else ()))))
        rate = "not known from before" if self.shift is None else self.shift.rate
        return f"lengths: {lengths or 'no change shown'}; rate: {rate}"

    def document(self) -> dict[str, Any]:
        """None is "not known"."""
        shift = self.shift
        return {
            "drift": self.drift,
            "lengths": None if shift is None else [one.document() for one in shift.lengths],
            "rate": None if shift is None else shift.rate.document(),
        }


class Watching:
    """Told of every account of the traffic (`heard`), of what was looked at (`looked`) and of plans (`planned`)."""

    def __init__(self, rhythm: Rhythm, clock: Callable[[], float]) -> None:
        self._rhythm, self._clock = rhythm, clock
        self._events: dict[str, int] | None = None  # by gateway: the number of the last one that is dealt with
        self._echoes: dict[_Kind, int] = {}
        self._planned_s = -math.inf
        self._looked_s = clock()
        self._window_s = rhythm.every_s
        self._way = 0  # in which the rate had changed at the last look
        self._pace: Pace | None = None
        self._reference: Observed | None = None

    def heard(self, document: Mapping[str, Any]) -> Cause | None:
        """A reason to ask for the rows, if there is one now."""
        now_s, news = self._clock(), self._news(document["drifts"])
        if self._reference is None and document["requests"] >= self._rhythm.least:
            return Cause()
        if now_s - self._planned_s < self._rhythm.interval_s:
            return None
        if news and (cause := self._drifted(news)):
            return cause
        if self._reference is not None and now_s - self._looked_s >= self._rhythm.every_s and not news:
            return Cause(within_s=self._window_s)
        return None

    def _news(self, drifts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        counts: Mapping[str, int] = drifts["counts"]
        if self._events is None:
            self._events = dict(counts)
        for gateway, count in counts.items():
            if count < self._events.get(gateway, 0):  # another process, which counts from the start
                self._events[gateway] = 0
        events = self._events
        return [e for e in drifts["newest"] if e["number"] > events.get(e["gateway"], 0) and not self._echo(e)]

    def _echo(self, event: Mapping[str, Any]) -> bool:
        """Each gateway finds a change for itself, some later than others: the first event of a kind that was planned for on
        the word of another gateway is no news."""
        kind = _kind(event)
        if kind not in self._echoes:
            return False
        number = int(event["number"])
        self._echoes[kind] = self._echoes[kind] or number
        return self._echoes[kind] == number

    def _drifted(self, news: Sequence[Mapping[str, Any]]) -> Cause | None:
        """Since the newest one, so that none of the old traffic is in it. Where they go on and on, since the first."""
        newest, first = min(news, key=_age), max(news, key=_age)
        for event in (newest, *([first] if _age(first) >= self._rhythm.interval_s else [])):
            if event["requests_since"] >= self._rhythm.least:
                more = f", and {len(news) - 1} more" if len(news) > 1 else ""
                return Cause(f"answers are {first['change']}: {' · '.join(first['class'])}{more}", None, _age(event))
        return None

    def looked(self, cause: Cause, now: Observed) -> Cause | None:
        """What `heard` said, with what has changed in the rows; None where there is nothing to plan for yet."""
        enough = len(now.rows) >= self._rhythm.least
        shift = self._shift(now)
        if cause.drift:
            return replace(cause, shift=shift) if enough else None
        self._looked_s = self._clock()
        stays = shift is not None and self._stays(shift.rate)
        if not enough:
            self._window_s += self._rhythm.every_s  # else slow traffic is never compared
            return None
        self._window_s = self._rhythm.every_s
        if shift is None:
            self._reference = now
            self._pace = Pace.of(now, self._rhythm.every_s, self._rhythm.least)
            return None
        return Cause(shift=shift, within_s=now.window_s) if shift.lengths or stays else None

    def _stays(self, rate: RateShift) -> bool:
        """Changed at the last look, too, in the same way: a swell that is over by the next one is not planned for."""
        before, self._way = self._way, rate.way
        return rate.sure and rate.way != 0 and rate.way == before

    def _shift(self, now: Observed) -> Shift | None:
        if self._reference is None or self._pace is None:
            return None
        rate = RateShift.of(self._pace, Pace.of(now), self._rhythm.rate_change)
        return Shift(rate, length_shifts(self._reference, now))

    def planned(self, observed: Observed, document: Mapping[str, Any]) -> None:
        """A plan was made from `observed`; `document` is the account that led to it: later events are news."""
        counts: Mapping[str, int] = document["drifts"]["counts"]
        told = {_kind(event) for event in self._news(document["drifts"])}
        others = {(gateway, klass, change) for _, klass, change in told for gateway in counts} - told
        self._echoes = dict.fromkeys(others, 0)
        self._events = dict(counts)
        self._planned_s = self._looked_s = self._clock()
        self._window_s, self._way = self._rhythm.every_s, 0
        self._reference, self._pace = observed, Pace.of(observed)


def _age(event: Mapping[str, Any]) -> float:
    return float(event["age_s"])


def _kind(event: Mapping[str, Any]) -> _Kind:
    return event["gateway"], tuple(event["class"]), event["change"]
