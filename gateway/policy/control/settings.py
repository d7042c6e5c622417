"""From the policy as configured to the nouns of its parts. Pure."""

from collections.abc import Mapping
from math import inf

from gateway.policy.admission.balance import Balance
from gateway.policy.control.classes import Classes
from gateway.policy.estimate import Knobs, Prior
from gateway.policy.fairness.budget import FairBounds
from gateway.policy.fairness.limits import Limits
from gateway.policy.fairness.rules import FairRules
from gateway.policy_config import PolicyConfig, TenantPolicy


def knobs_of(config: PolicyConfig) -> Knobs:
    lengths = config.lengths
    return Knobs(
        prior=Prior(lengths.prior),
        half_life_observations=lengths.half_life_observations,
        half_life_s=lengths.half_life_s,
        shrink_observations=lengths.shrink_observations,
    )


def limits_of(tenant: TenantPolicy) -> Limits:
    return Limits(
        _or(tenant.requests_per_s),
        _or(tenant.tokens_per_s),
        tenant.burst_s,
        _or(None if tenant.concurrent is None else float(tenant.concurrent)),
    )


def tenant_limits(config: PolicyConfig) -> Mapping[str, Limits]:
    return {name: limits_of(tenant) for name, tenant in config.tenants.items()}


def bounds_of(classes: Classes) -> tuple[FairBounds, Mapping[str, FairBounds]]:
    """Of the default class, and of all by name."""
    return classes.default.bounds, {name: klass.bounds for name, klass in classes.by_name.items()}


def fair_rules(config: PolicyConfig, classes: Classes) -> FairRules:
    """A prompt whose class was promised a TTFT is given up when that can no longer be kept."""
    return FairRules(
        prompt_weight=config.prompt_weight,
        output_weight=config.output_weight,
        classes={klass.name: klass.weight for klass in classes},
        tenants={name: tenant.weight for name, tenant in config.tenants.items()},
        stretch=config.stretch,
        band_share=config.band_share,
        long_above_tokens=_or(None if config.long_above_tokens is None else float(config.long_above_tokens)),
        give_up_early=any(klass.ttft_s is not None for klass in classes),
    )


def balance_of(config: PolicyConfig) -> Balance | None:
    return Balance(config.balance.above, config.balance.spread) if config.balance else None


def _or(limit: float | None) -> float:
    return inf if limit is None else limit
