"""The worst step is found without all bounds, and is the one that all of them leave."""

import numpy as np
import pytest

from gateway.policy.admission.risk import COUNT, Budget, M, outlook, quantile
from gateway.policy.estimate.estimate import Floats

STEPS: Floats = np.arange(52, dtype=np.float64)


@pytest.mark.parametrize("epsilon", [0.001, 0.07, 0.3])
def test_the_peak_is_that_of_the_quantile_whichever_bound_holds(epsilon: float) -> None:
    random, budget, bound = np.random.default_rng(7), Budget(epsilon), set()
    for _ in range(400):
        moments = np.empty((COUNT, len(STEPS)))
        alive = random.uniform(0.0, 1.0, len(STEPS)) ** random.uniform(0.2, 12.0)
        blocks = random.uniform(1.0, 900.0, len(STEPS))
        moments[M.MEAN] = alive * blocks
        moments[M.VARIANCE] = alive * (1.0 - alive) * blocks**2
        moments[M.THIRD] = moments[M.VARIANCE] * (1.0 - 2.0 * alive) * blocks
        moments[M.COMMON] = alive * (1.0 - alive) * blocks * random.uniform(0.0, 0.4)
        moments[M.TOP] = blocks * random.choice([1.0, 3.0])
        high = quantile(moments, budget.z, epsilon)
        worst = int(high.argmax())
        found = outlook(moments, STEPS, 500.0, budget)
        assert (found.peak_blocks, found.peak_step) == (high[worst], worst)
        bound.add((high[worst] == moments[M.TOP, worst], high[worst] < moments[M.TOP, worst]))
    assert len(bound) == 2  # some peaks were cut, and some were not
