"""An answer under way as a request of its own: what it asks of a worker that goes on with it. Pure."""

from dataclasses import replace

from gateway.policy.control.plan import Plan, likely_growth
from gateway.policy.routing import Need


def going_on(plan: Plan, generated_tokens: int) -> Plan:
    """Of one answer that has so many tokens: they are prompt now, and its length is what it still can become.

    It is in no class of lengths any more (`kin`): those that are told of the class are whole answers.
    """
    estimate = plan.estimate.given(generated_tokens)
    prompt = plan.need.prompt_tokens + generated_tokens
    growth = max(1, plan.need.growth_tokens - generated_tokens)
    forecast = bool(plan.lengths)
    likely = min(growth, likely_growth(estimate, prompt)) if forecast else 0
    return replace(
        plan,
        answers=1,
        need=Need(prompt, growth, 1, likely, estimate.mean),
        estimate=estimate,
        limit_tokens=max(1, plan.limit_tokens - generated_tokens),
        lengths=tuple(estimate.lengths.tolist()) if forecast else (),
        kin=0,
    )
