"""An answer under way as a request of its own: what it asks of a worker that goes on with it. Pure."""

from dataclasses import replace

from gateway.policy.control.plan import Plan, likely_growth
from gateway.policy.estimate import LengthModel
from gateway.policy.need import Need


def newest(plan: Plan, lengths: LengthModel) -> Plan:
    """The same, by what is known of its class by now; one whose length is known by itself stays as it is."""
    if not plan.kin or not plan.lengths:
        return plan
    estimate = lengths.estimate(plan.features, plan.limit_tokens)
    if plan.terms.headroom:
        estimate = estimate.scaled(lengths.headroom(plan.features))
    return replace(plan, estimate=estimate, lengths=tuple(estimate.lengths.tolist()))


def going_on(plan: Plan, generated_tokens: int) -> Plan:
    """Of one answer that has so many tokens: they are prompt now, and it asks for what it still can become.

    A worker is told the lengths of the whole answer, and how far it has come. It takes them for the newest that are known of the
    class: see `newest`.
    """
    estimate = plan.estimate.given(generated_tokens)
    prompt = plan.need.prompt_tokens + generated_tokens
    growth = max(1, plan.need.growth_tokens - generated_tokens)
    likely = min(growth, likely_growth(estimate, prompt)) if plan.lengths else 0
    return replace(
        plan,
        answers=1,
        need=Need(prompt, growth, 1, likely, estimate.mean),
        estimate=estimate,
        generated_tokens=generated_tokens,
    )
