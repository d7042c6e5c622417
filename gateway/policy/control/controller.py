"""The policy of one gateway: the parts of admission put together, for the gateway and for the simulator alike. Pure.

The life of a prompt: `plan` (estimate, what to reserve), `enter` (limits), a place in `line` under its `claim`,
`objection` (early rejection), `reserve` (what the worker is asked), `answered` for each answer, `closed` for the request.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from gateway.config import GatewayConfig
from gateway.policy.admission.balance import Balance
from gateway.policy.bid import Ask, Bid, Line, T
from gateway.policy.control.buckets import Buckets
from gateway.policy.control.classes import Classes, Klass
from gateway.policy.control.decisions import Decisions, Look, Seen, outcome
from gateway.policy.control.early import Early
from gateway.policy.control.forecast import arrival_s
from gateway.policy.control.pace import Pace
from gateway.policy.control.plan import Asked, Plan, foreseen, planned
from gateway.policy.control.rows import BucketRow, ClassRow, EarlyRow, FairRow, PolicySnapshot, QueueRow
from gateway.policy.control.settings import balance_of, bounds_of, fair_rules, knobs_of, limits_of, tenant_limits
from gateway.policy.control.terms import Canary, Terms
from gateway.policy.estimate import Drift, FinishedBy, Ledger, LengthModel, Predictor
from gateway.policy.fairness.budget import FairnessBudget, Outcome
from gateway.policy.fairness.claim import Claim
from gateway.policy.fairness.limits import Limited, Limiter, Pass
from gateway.policy.fairness.queue import FairQueue
from gateway.policy.rejection import Reject
from gateway.policy.routing import Fleet, NoRoute, Placement, Rules, Wait
from gateway.policy.turned_away import TurnedAway
from gateway.policy_config import Drain, PolicyConfig, Rule
from proto.reservation import Refusal, ReserveRequest

#: The last events that are kept.
_DRIFTS = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """What the controller takes from other sections: tokens counted for an undeclared limit, s in line."""

    default_output_tokens: int = 1024
    queue_s: float = 60.0


class Controller:
    """Reads `clock` (s, monotonic or virtual) and nothing else; not thread-safe."""

    def __init__(
        self,
        config: PolicyConfig,
        clock: Callable[[], float],
        setting: Setting | None = None,
        predictor: Predictor | None = None,
    ) -> None:
        knobs = knobs_of(config)
        self.terms = Terms.of(config)
        self.canary: Canary | None = None
        self.lengths = LengthModel(knobs, clock, predictor)
        self.limiter = Limiter(limits_of(config.others), tenant_limits(config))
        self.fairness = FairnessBudget(*bounds_of(self.classes))
        self.accounts = Ledger(knobs)  # by class of the policy, where the model's own are by class of length
        self.decisions = Decisions(config.decisions)
        self.pace = Pace(clock)
        self.early = Early(clock, self.pace)
        self.buckets = Buckets()
        self.rejected: Counter[str] = Counter()
        self.drifts: Counter[str] = Counter()
        self.newest_drifts: deque[Drift] = deque(maxlen=_DRIFTS)
        self._config = config
        self._clock = clock
        self._setting = setting or Setting()
        self._fair = fair_rules(config, self.classes)
        self._lines: list[FairQueue[Any]] = []

    @property
    def version(self) -> str:
        return self.terms.version

    @property
    def rule(self) -> Rule:
        return self.terms.rule

    @property
    def classes(self) -> Classes:
        return self.terms.classes

    @property
    def balance(self) -> Balance | None:
        """When answers leave a full worker; None: never."""
        return balance_of(self._config)

    @property
    def empties(self) -> bool:
        """Whether answers leave a worker that takes no more of them."""
        return self._config.drain is Drain.MOVE

    # its version

    def adopt(self, config: PolicyConfig) -> None:
        """Another policy from the next decision on. Everything learnt and counted, accounts and open bills stay; who
        waits keeps the class, promise and deadline that it lined up with (R-17, R-77)."""
        knobs, now_s = knobs_of(config), self._clock()
        self.lengths.adopt(knobs)
        self.accounts.adopt(knobs, now_s)
        self.terms, self.canary, self._config = Terms.of(config), None, config
        self.limiter.adopt(limits_of(config.others), tenant_limits(config), now_s)
        self.fairness.adopt(*bounds_of(self.classes))
        self.decisions.keep(config.decisions)
        self._adopt_fair()

    def try_out(self, config: PolicyConfig | None, share: float = 0.0) -> None:
        """A share of the requests gets the per-request part of another policy; None ends it (R-79)."""
        self.canary = Canary(Terms.of(config), share) if config else None
        self._adopt_fair()

    def terms_of(self, request_id: str) -> Terms:
        """The version under which a request is decided; always the same while the two stay."""
        return self.canary.terms if self.canary and self.canary.takes(request_id) else self.terms

    def _adopt_fair(self) -> None:
        rules = fair_rules(self._config, self.classes)
        if self.canary and self.canary.terms.promises:
            rules = replace(rules, give_up_early=True)
        self._fair = rules
        for line in self._lines:
            line.adopt(rules)

    def recall(self, document: dict[str, Any]) -> None:
        """The lengths that an earlier process has learnt (`lengths.document()`). Raises where they cannot be used, and
        then nothing has changed."""
        self.lengths = LengthModel.restore(document, self.lengths.knobs, self._clock, self.lengths.predictor)

    # before the line

    def plan(self, asked: Asked, terms: Terms | None = None) -> Plan:
        """`terms`: of the version that its request is decided under, where that is not the one in force."""
        plan = planned(asked, terms or self.terms, self.lengths, self._setting.default_output_tokens)
        self.early.planned(plan.need)
        return plan

    def enter(self, tenant: str, plans: list[Plan]) -> Pass | Limited:
        """At the door, once a request."""
        return self.limiter.enter(tenant, sum(plan.tokens for plan in plans), self._clock(), self._ends_s(plans))

    def _ends_s(self, plans: list[Plan]) -> float | None:
        alone = [self.pace.unloaded_s(plan.features.prompt_tokens, round(plan.estimate.mean)) for plan in plans]
        known = [seconds for seconds in alone if seconds is not None]
        return self._clock() + max(known) if known else None

    def complete(self, entered: Pass) -> None:
        """The client has all of its answer, though the request is still winding up."""
        self.limiter.answered(entered)

    def leave(self, entered: Pass, tokens: float) -> None:
        """The request is over, after so many tokens, prompts included."""
        self.limiter.leave(entered, tokens, self._clock())

    # the line

    def line(self, limit: int) -> Line[T]:
        queue: FairQueue[Ask[T]] = FairQueue(limit, lambda ask: ask.bid.claim, self._fair)
        self._lines.append(queue)
        return queue

    def open(self, bid: Bid) -> None:
        """A prompt is about to ask for a place."""
        if (plan := bid.plan) is not None:
            version, rule = plan.terms.version, plan.terms.rule.value
            bid.decision = self.decisions.open(bid.request_id, plan, version, rule, self._clock())

    def claim(self, plan: Plan, client_deadline_s: float = inf) -> Claim:
        """From now on; once more whenever a prompt comes back to the line. `client_deadline_s` is a moment."""
        now_s, klass = self._clock(), plan.klass
        queue_s = min(klass.queue_s or inf, self._setting.queue_s)
        return Claim(
            tenant=plan.features.tenant,
            klass=klass.name,
            band=klass.band,
            prompt_tokens=plan.features.prompt_tokens,
            expected_output_tokens=plan.output_tokens,
            deadline_s=min(now_s + queue_s, client_deadline_s),
            promise_s=inf if klass.ttft_s is None else now_s + klass.ttft_s,
            first_token_s=plan.features.prompt_tokens * self.pace.prompt_s,
        )

    def lapse_s(self, claim: Claim) -> float:
        """When waiting on is pointless."""
        return self._fair.lapse_s(claim)

    def broken_promise(self, claim: Claim) -> bool:
        """Whether it is the promise that ends the waiting, and not the deadline."""
        return self.lapse_s(claim) < claim.deadline_s

    def objection(self, bid: Bid, fleet: Fleet, waiting: int, admitted_per_s: float) -> Reject | None:
        """Early rejection: before anything is computed, for what was promised or for the decode load to come."""
        if bid.plan is None:
            return None
        return self.early.objection(bid.plan, bid.need, fleet, waiting, admitted_per_s)

    def decided(self, bid: Bid, fleet: Fleet, rules: Rules, seen: Placement | Wait | NoRoute | TurnedAway) -> None:
        """For `explain`: what was decided, among whom."""
        if bid.decision is None:
            return
        view = Seen(bid.need, fleet, rules, frozenset(bid.avoid), frozenset(bid.never))
        if isinstance(seen, TurnedAway):
            numbers = dict(seen.numbers) or {"waited_s": round(seen.waited_s, 6)}
            look = Look(self._clock(), "refused", "", seen.why.value, seen.waiting, view, numbers)
        elif isinstance(seen, Placement):
            look = Look(self._clock(), "placed", seen.worker_id, seen.reason, 0, view, ways=seen.ways)
        else:
            look = Look(self._clock(), outcome(seen), "", "", 0, view)
        bid.decision.look(look)

    # the worker

    def reserve(
        self, bid: Bid, gateway_id: str, name: str, ttl_s: float, path: Placement, fleet: Callable[[], Fleet]
    ) -> ReserveRequest:
        """What a decode worker is asked for. `fleet` is looked at only where KV has to come from elsewhere."""
        need, plan = bid.need, bid.plan
        if plan is None or not plan.lengths:
            prompt, growth = need.prompt_tokens, need.growth_tokens
            return ReserveRequest(
                gateway_id, name, prompt, growth, ttl_s, need.answers, emergency=bid.emergency, moves=bid.moves
            )
        return ReserveRequest(
            gateway_id,
            name,
            need.prompt_tokens,
            need.growth_tokens,
            ttl_s,
            need.answers,
            plan.lengths,
            plan.limit_tokens,
            arrival_s(path.path, need, fleet, self.pace.prompt_tokens_per_s),
            plan.kin,
            plan.generated_tokens,
            bid.emergency,
            bid.moves,
        )

    def not_granted(self, bid: Bid, worker_id: str, refusal: Refusal) -> None:
        if bid.decision is not None:
            numbers = {
                "blocks_needed": refusal.blocks_needed,
                "blocks_total": refusal.blocks_total,
                "peak_blocks": round(refusal.peak_blocks, 1),
                "limit_blocks": refusal.limit_blocks,
                "risk": round(refusal.risk, 6),
                "peak_step": refusal.peak_step,
            }
            bid.decision.look(Look(self._clock(), "not granted", worker_id, refusal.reason.value, 0, None, numbers))

    # the end

    def answered(self, bid: Bid, tokens: int, finished_by: FinishedBy) -> None:
        """One answer is over, or will never come (0 tokens)."""
        plan = bid.plan
        if plan is None or (finished_by.left_early and tokens < 1):
            return
        self.accounts.record((plan.klass.name,), plan.estimate, tokens, finished_by, self._clock())
        self.buckets.record(plan.features.model, plan.estimate, tokens, finished_by)
        drifts = self.lengths.observe(plan.features, tokens, finished_by, plan.estimate)
        foreseen(plan.features, plan.limit_tokens, self.lengths)
        self.drifts[plan.klass.name] += len(drifts)
        self.newest_drifts.extend(drifts)
        if bid.decision is not None:
            bid.decision.answered.append({"tokens": tokens, "finished_by": finished_by.value})

    def closed(self, klass: Klass, ended: Outcome, e2e_s: float, prompt_tokens: int, output_tokens: int) -> None:
        """The request is over; `output_tokens` of its longest answer."""
        self.fairness.ended(klass.name, ended, self._clock(), e2e_s, self.pace.unloaded_s(prompt_tokens, output_tokens))

    def refused(self, reason: str) -> None:
        self.rejected[reason] += 1

    # what is shown

    def snapshot(self, waiting: dict[tuple[str, str], int]) -> PolicySnapshot:
        """`waiting`: prompts in line by band and class."""
        accounts = {key[0]: account for key, account in self.accounts}
        reports = self.fairness.snapshot(self._clock())
        return PolicySnapshot(
            self.version,
            self.rule.value,
            tuple(ClassRow.of(name, accounts[name], self.drifts[name]) for name in sorted(accounts)),
            tuple(QueueRow(band, klass, count) for (band, klass), count in sorted(waiting.items())),
            tuple(FairRow.of(report) for report in reports),
            dict(sorted(self.rejected.items())),
            len(self.limiter),
            tuple(BucketRow.of(model, name, bucket) for model, name, bucket in self.buckets),
            tuple(EarlyRow.of(self.early.hindsight, reason) for reason in self.early.hindsight.reasons),
        )


def controller_of(config: GatewayConfig, clock: Callable[[], float]) -> Controller:
    """The policy of a gateway with this configuration, live or simulated."""
    return Controller(config.policy, clock, Setting(config.admission.default_output_tokens, config.deadlines.queue_s))
