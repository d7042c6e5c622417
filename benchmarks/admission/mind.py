"""The gateway's policy during one run: the controller that ships, but for the lengths that only the bench knows.

The simulator says of every prompt how long its answer is going to be, as a client that declares it would. A mind hides that:
every client declares the rest of the window. Only the oracle is told, and everybody of the answers under way at the start.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from benchmarks.admission.begun import BEGUN
from gateway.config import GatewayConfig
from gateway.policy.bid import Bid
from gateway.policy.control.controller import Controller, Setting
from gateway.policy.control.plan import Asked, Plan
from gateway.policy.control.terms import Terms
from gateway.policy.estimate import Features, FinishedBy
from gateway.policy.estimate.estimate import Estimate
from loadgen.demand import Demand


class Mind(Controller):
    """`exact`: the oracle."""

    def __init__(self, config: GatewayConfig, clock: Callable[[], float], *, exact: bool) -> None:
        setting = Setting(config.admission.default_output_tokens, config.deadlines.queue_s)
        super().__init__(config.policy, clock, setting)
        self._exact = exact

    def plan(self, asked: Asked, terms: Terms | None = None) -> Plan:
        hidden = replace(asked, limit_tokens=max(1, asked.window - asked.features.prompt_tokens))
        plan = super().plan(hidden, terms)
        known = self._exact or asked.features.effort == BEGUN
        return exactly(plan, asked.limit_tokens) if known else plan

    def answered(self, bid: Bid, tokens: int, finished_by: FinishedBy) -> None:
        """Of what was under way at the start only the rest was seen: nothing is learnt of it."""
        if bid.plan is not None and bid.plan.features.effort != BEGUN:
            super().answered(bid, tokens, finished_by)

    def teach(self, model: str, demands: Iterable[Demand]) -> None:
        """Answers that ended before the run, as a gateway knows them that was restarted with its saved state."""
        for demand in demands:
            self.lengths.observe(features(model, demand), demand.output_tokens, FinishedBy.STOP)


def exactly(plan: Plan, output_tokens: int) -> Plan:
    """The same plan of somebody who knows the length."""
    known = Estimate.exactly(output_tokens)
    likely = output_tokens if plan.lengths else 0
    need = replace(plan.need, growth_tokens=output_tokens, likely_tokens=likely)
    lengths = tuple(known.lengths.tolist()) if plan.lengths else ()
    return replace(plan, estimate=known, need=need, lengths=lengths, kin=0)  # of no class: it is known by itself


def features(model: str, demand: Demand) -> Features:
    return Features(model, demand.prompt_tokens, demand.tenant, demand.klass, demand.klass)
