"""Who is compared: the rules of admission, each with the same fleet, gateway, line, router and knowledge of lengths."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.admission.mind import Mind
from benchmarks.admission.router import Router
from decode_pool.expected import Admission
from gateway.config import GatewayConfig
from gateway.policy.admission import AdmissionRule, Oracle, PastFuture, mean_rule, quantile_rule
from gateway.policy.control.classes import DEFAULT
from gateway.policy_config import ClassPolicy, PolicyConfig, Rule
from loadgen.simulate import Layout, Policies

OURS, ORACLE = "forecast", "oracle"
#: Beside those that are compared: what moves alone bring ours, and what they would bring the rule that it is compared with most.
STAYS, PAST_FUTURE_MOVES = "forecast_stays", "past_future_moves"
ABLATIONS = (STAYS, PAST_FUTURE_MOVES)
#: Of the capacity, that Past-Future keeps free; its paper uses 3 to 10 %.
PAST_FUTURE_RESERVE = 0.05


@dataclass(frozen=True, slots=True)
class Contender:
    """`rule` None: the rule that ships. `admission` False: the engines are left alone. `moves`: answers leave a worker that runs
    out of KV for one that has some, as shipped; otherwise its engine preempts."""

    name: str
    title: str
    rule: Callable[[], AdmissionRule] | None = None
    declared: bool = False
    admission: bool = True
    moves: bool = False

    def enter(
        self, layout: Layout, ours: Admission | None = None, policy: PolicyConfig | None = None
    ) -> tuple[Layout, list[Mind]]:
        """The layout under this rule, and the gateway's policy in it once it runs. `ours`: knobs of the rule that ships;
        `policy`: of the gateway, but for its rule."""
        if self.rule is None:
            knobs = ours or Admission()
        else:
            knobs = Admission(pool_share=0.0, spread=0.0, learn=False, rule=self.rule())
        rule = Rule.DECLARED if self.declared or not self.admission else Rule.FORECAST
        settled = (policy or PolicyConfig()).model_copy(update={"rule": rule})
        if not self.moves:
            settled = _without_moves(settled)
        minds: list[Mind] = []

        def controller(config: GatewayConfig, clock: Callable[[], float]) -> Mind:
            minds.append(Mind(config, clock, exact=self.name == ORACLE))
            return minds[-1]

        router = Router(knobs)
        return replace(
            layout,
            gateway=layout.gateway.model_copy(update={"policy": settled}),
            policies=Policies(ledger=router.ledger, place=router.place),
            controller=controller,
            admission=self.admission,
        ), minds


def _without_moves(policy: PolicyConfig) -> PolicyConfig:
    classes = {DEFAULT: ClassPolicy(), **policy.classes}
    stay = {name: klass.model_copy(update={"on_overrun": ()}) for name, klass in classes.items()}
    return policy.model_copy(update={"classes": stay})


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("reserve_max", "(a) reserve max_tokens", declared=True),
        Contender("mean", "(b) mean", mean_rule),
        Contender("none", "(c) none", admission=False),
        Contender("quantile", "(d) 0.9 quantile", lambda: quantile_rule(0.9)),
        Contender("past_future", "(e) Past-Future", lambda: PastFuture(reserved_share=PAST_FUTURE_RESERVE)),
        Contender(ORACLE, "(f) oracle", Oracle),
        Contender(OURS, "ours: forecast", moves=True),
        Contender(STAYS, "ours without moves"),
        Contender(
            PAST_FUTURE_MOVES,
            "(e) with ours' moves",
            lambda: PastFuture(reserved_share=PAST_FUTURE_RESERVE),
            moves=True,
        ),
    )
}
