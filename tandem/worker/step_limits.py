"""What the gateways let the engine compute in a step, put together."""

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.base import Engine, EngineDeadError
from engine.dispatcher import Dispatcher
from proto.worker import StepLimit, StepReport

#: Tokens of a step, and of one prompt in it; 0 is as the engine was configured.
_Bounds = tuple[int, int]

_FREE: _Bounds = 0, 0

#: No gateway can bound an engine for longer than this, whatever it asks for, unless it says so again; they ask for seconds.
MAX_LEASE_S = 60.0


@dataclass(slots=True)
class StepLimits:
    """The least of the limits in force holds. Each gateway counts its own answers alone, so where several set one, or more runs
    than the one that is set has room for, a step has room for every request that is here and the least chunk. A limit
    that is not renewed ends: a gateway that is gone slows nobody down. `tend` must be called now and then for both.
    """

    engine: Engine
    dispatcher: Dispatcher
    clock: Callable[[], float]
    _limits: dict[str, tuple[StepLimit, float]] = field(default_factory=dict)
    _set: _Bounds = _FREE

    def say(self, limit: StepLimit) -> StepReport:
        """The newest word of a gateway; what it hears of the steps is from before it."""
        stats = self.dispatcher.stats()
        self._limits.pop(limit.gateway_id, None)
        if limit.step_tokens and limit.lease_s > 0:  # which NaN is not
            self._limits[limit.gateway_id] = limit, self.clock() + min(limit.lease_s, MAX_LEASE_S)
        # An engine that could not be told a moment ago may not even have heard that there is no limit any more.
        self.tend(again=not stats.most_step_tokens)
        return StepReport(stats.most_step_tokens, stats.totals)

    def tend(self, *, again: bool = False) -> None:
        """Has the engine keep what is in force now."""
        now_s = self.clock()
        for gateway_id in [name for name, (_, until_s) in self._limits.items() if until_s <= now_s]:
            del self._limits[gateway_id]
        bounds = self._bounds()
        if (bounds != self._set or again) and self.dispatcher.dead is None:
            self._set = bounds
            try:
                self.engine.limit_step(*bounds)
            except EngineDeadError:
                return  # its frames say so to everybody

    def _bounds(self) -> _Bounds:
        limits = [limit for limit, _ in self._limits.values()]
        if not limits:
            return _FREE
        tokens = min(limit.step_tokens for limit in limits)
        chunk_tokens = min(limit.chunk_tokens for limit in limits)
        unknown = tokens <= self.dispatcher.stats().running  # some of these are of a gateway that sets none
        if len(limits) > 1 or unknown:
            tokens = max(tokens, self.dispatcher.live + chunk_tokens)
        return tokens, chunk_tokens
