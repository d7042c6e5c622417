"""Early rejection as the controller asks for it: the forecast of the fleet, the promise, and the look back. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from gateway.policy.control.forecast import FleetForecast, decode_load, prefill_s, queue_s
from gateway.policy.control.hindsight import Hindsight
from gateway.policy.control.pace import Pace
from gateway.policy.control.plan import Plan
from gateway.policy.need import Need
from gateway.policy.rejection import Ask, Reject, RejectReason
from gateway.policy.routing import Fleet

#: Share of the newest prompt in the smoothed size of what waits.
_SMOOTHING = 0.05


@dataclass(slots=True)
class Early:
    """`clock` in s. `usual_tokens`: what a prompt and its answers take of a worker, smoothed."""

    clock: Callable[[], float]
    pace: Pace
    hindsight: Hindsight = field(default_factory=Hindsight)
    usual_tokens: float = 0.0

    def planned(self, need: Need) -> None:
        taken = need.prompt_tokens + (need.likely_tokens or need.growth_tokens)
        self.usual_tokens += (_SMOOTHING if self.usual_tokens else 1.0) * (taken - self.usual_tokens)

    def objection(self, plan: Plan, need: Need, fleet: Fleet, waiting: int, admitted_per_s: float) -> Reject | None:
        """`need`: of all prompts of the request, where `plan` is that of the longest."""
        if (plan.klass.ttft_s is None and not plan.terms.decode) or not fleet.decodes:
            return None  # without a worker nothing is full: whether one is about to come back, others know
        size, now_s = _block_size(fleet), self.clock()
        usual_blocks = self.usual_tokens / size
        load, room = decode_load(fleet, waiting * usual_blocks)
        if self.hindsight.due_s <= now_s:
            self.hindsight.look(now_s, load)
        compute_s = prefill_s(plan.need, fleet, self.pace.prompt_tokens_per_s)
        first_s = queue_s(waiting, admitted_per_s) + compute_s
        forecast = FleetForecast(first_s, load, admitted_per_s * usual_blocks / room if room else 0.0)
        ask = Ask(
            inf if plan.klass.ttft_s is None else plan.klass.ttft_s,
            need.likely_blocks(size) / room if room else 1.0,
        )
        verdict = plan.terms.rejection.before_prefill(ask, forecast)
        if not isinstance(verdict, Reject):
            return None
        self._remember(verdict, ask, waiting, compute_s)
        return verdict

    def look_back(self, fleet: Callable[[], Fleet], waiting: int) -> None:
        """Whenever there is news; looks at the fleet only when a refusal can be judged."""
        now_s = self.clock()
        if self.hindsight.due_s <= now_s:
            there = fleet()
            load, _ = decode_load(there, waiting * (self.usual_tokens / _block_size(there)))
            self.hindsight.look(now_s, load)

    def granted(self) -> None:
        """A prompt, or all of a request, has been admitted."""
        self.hindsight.admitted(self.clock())

    def _remember(self, verdict: Reject, ask: Ask, waiting: int, compute_s: float) -> None:
        now_s = self.clock()
        if verdict.reason is RejectReason.TTFT:
            self.hindsight.late(waiting, now_s + ask.ttft_s - compute_s, now_s)
        else:
            numbers = verdict.numbers
            room = numbers["decode_load_limit"] - ask.decode_load
            self.hindsight.full(now_s + numbers["decode_load_at_s"], room)


def _block_size(fleet: Fleet) -> int:
    return max((decode.block_size_tokens for decode in fleet.decodes), default=1)
