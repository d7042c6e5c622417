"""One class's distribution: what it has seen, leaning on its parent's.

The nonparametric Bayes estimator under right censoring (Susarla and Van Ryzin, JASA 1976): a Dirichlet process around the
parent, worth `strength` observations. Without cut answers it is the weighted mixture of both; without a parent it is
Kaplan and Meier's. Beyond the longest answer that was seen whole, the tail is the parent's.
"""

import numpy as np

from gateway.policy.estimate.estimate import Floats


def posterior(parent: Floats, strength: float, ended: Floats, cut: Floats | None) -> Floats:
    """Probability by bin; all arguments are (bins,), `parent` sums to 1, the others are decayed weights.

    Cut answers count as at risk up to the bin they reached, which supposes that what cut them did not depend on how
    much longer they would have become. Less than nothing in a bin takes answers away that are counted further on.
    """
    if cut is None:
        mass = strength * parent + ended
        return np.asarray(mass / mass.sum(), dtype=np.float64)
    events = strength * parent + ended
    at_risk = np.maximum(events, (events + cut)[::-1].cumsum()[::-1])
    hazard = np.divide(events, at_risk, out=np.ones_like(events), where=at_risk > 0)
    hazard[-1] = 1.0  # cut in the last bin: counted there, for the grid ends
    alive = np.concatenate(([1.0], np.cumprod(1.0 - hazard)))
    return -np.diff(alive)
