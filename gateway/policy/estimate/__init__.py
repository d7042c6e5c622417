"""How long an answer will be, as a distribution. Pure: no I/O, the clock is injected (docs/length-model.md)."""

from gateway.policy.estimate.drift import Change, Drift
from gateway.policy.estimate.estimate import LEVELS, Estimate
from gateway.policy.estimate.features import Features, FinishedBy, untenanted
from gateway.policy.estimate.growth import growth_tokens
from gateway.policy.estimate.knobs import Knobs
from gateway.policy.estimate.ledger import Account, Ledger
from gateway.policy.estimate.model import LengthModel
from gateway.policy.estimate.predictor import Predictor
from gateway.policy.estimate.prior import Prior

__all__ = [
    "LEVELS",
    "Account",
    "Change",
    "Drift",
    "Estimate",
    "Features",
    "FinishedBy",
    "Knobs",
    "Ledger",
    "LengthModel",
    "Predictor",
    "Prior",
    "growth_tokens",
    "untenanted",
]
