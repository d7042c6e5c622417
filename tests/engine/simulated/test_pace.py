"""Runs of decode steps are counted by their lengths as if each step were looked at."""

from random import Random

import numpy as np
import pytest

from engine.simulated.cost import StepCost, load_profile
from engine.simulated.cost.linear import LinearCost
from engine.simulated.gaps import PLACES, place_of
from engine.simulated.pace import Pace

_COSTS = {
    "table": load_profile("h200-sxm/llama-3.1-8b").cost,
    "linear": LinearCost(base_s=1e-3, context_token_s=1e-6),
    "all alike": LinearCost(base_s=1e-3),
}


@pytest.mark.parametrize("cost", _COSTS.values(), ids=_COSTS)
@pytest.mark.parametrize("merging", [True, False], ids=["merging", "one by one"])
def test_each_step_is_counted_where_its_length_is(cost: StepCost, merging: bool) -> None:
    random = Random(7)
    for _ in range(30):
        pace, wanted, longest_s, steps_in_all = Pace(cost, merging=merging), np.zeros(PLACES, dtype=np.int64), 0.0, 0
        pace.token("one", 0.0)
        context_tokens, batch = random.randrange(1, 20_000), random.randrange(1, 60)
        for _ in range(random.randrange(1, 6)):
            steps = random.choice((1, 2, random.randrange(1, 3000)))
            pace.run(batch, context_tokens, steps)
            each_s = [cost.step_s(batch, context_tokens + batch * step) for step in range(steps)]
            np.add.at(wanted, [place_of(seconds) for seconds in each_s], 1)
            longest_s, steps_in_all = max(longest_s, *each_s), steps_in_all + steps
            context_tokens += batch * steps
            if random.random() < 0.3:
                context_tokens, batch = random.randrange(1, 20_000), random.randrange(1, 60)
        gaps = pace.end("one", 1.0)
        assert (len(gaps), gaps.longest_s) == (steps_in_all, longest_s)
        np.testing.assert_array_equal(gaps.counted(), wanted)
