"""Correlated uniforms: keeps the rank correlation of prompt and output lengths without keeping the rows."""

import math

import numpy as np

from loadgen.result import Floats


def phi(x: Floats) -> Floats:
    """Standard normal CDF (Abramowitz and Stegun 7.1.26 for erf; error below 2e-7)."""
    z = np.abs(x) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = 1 - poly * np.exp(-z * z)
    return np.asarray(np.where(x >= 0, (1 + erf) / 2, (1 - erf) / 2), dtype=np.float64)


def pearson_of(spearman: float) -> float:
    """The normal correlation that gives this rank correlation."""
    return 2 * math.sin(math.pi * spearman / 6)


def correlated(first: Floats, noise: Floats, correlation: float) -> Floats:
    """A standard normal that has `correlation` with `first`."""
    return correlation * first + math.sqrt(1 - correlation**2) * noise
