"""Experts that are chosen unevenly slow a group by its slowest rank (R-34)."""

from itertools import pairwise

import pytest

from engine.simulated.cost import load_profile
from engine.simulated.cost.expert_load import ExpertLoad, expert_load
from engine.simulated.cost.models import SHAPES

R1 = "h200-sxm/deepseek-r1?tp=8"


def gini(shares: tuple[float, ...]) -> float:
    rising = sorted(shares)
    count = len(rising)
    return sum((2 * place - count - 1) * share for place, share in enumerate(rising, 1)) / (count * sum(rising))


@pytest.mark.parametrize("wanted", [0.1, 0.24, 0.38, 0.9])
def test_the_popularity_has_the_gini_that_was_asked(wanted: float) -> None:
    load = ExpertLoad(256, 8, 58, 8, wanted)
    assert gini(load.popularity) == pytest.approx(wanted, abs=1e-4)
    assert sum(load.popularity) == pytest.approx(1.0)


def test_the_slowest_rank_is_that_of_each_layer_by_hand() -> None:
    """Two layers of four experts on two ranks: what the shares of the layers say, and no more."""
    load = ExpertLoad(4, 2, 2, 2, 0.3, seed=5)
    for shares in load.rank_shares:
        assert sum(shares) == pytest.approx(1.0)
    first, second = (max(shares) * 2 for shares in load.rank_shares)
    assert load.slowest == pytest.approx((first + second) / 2)
    assert load.tokens_by_rank(1000) == [
        round(1000 * 2 * (load.rank_shares[0][rank] + load.rank_shares[1][rank]) / 2) for rank in range(2)
    ]


def test_more_skew_and_more_ranks_make_the_slowest_slower() -> None:
    shape = SHAPES["deepseek-r1"]
    by_skew = [expert_load(shape, 8, skew, 0).slowest for skew in (0.0, 0.1, 0.24, 0.38)]
    assert by_skew[0] == pytest.approx(1.0)
    assert all(after > before for before, after in pairwise(by_skew))
    by_ranks = [expert_load(shape, ranks, 0.24, 0).slowest for ranks in (1, 2, 4, 8)]
    assert by_ranks[0] == pytest.approx(1.0)
    assert all(after > before for before, after in pairwise(by_ranks))


def test_a_seed_fixes_it() -> None:
    shape = SHAPES["deepseek-r1"]
    one, again, other = (expert_load(shape, 8, 0.24, seed).rank_shares for seed in (1, 1, 2))
    assert one == again != other


STEPS = [(1, 2000, []), (64, 128_000, []), (1024, 2_048_000, []), (0, 0, [(2048, 0)]), (0, 0, [(16_384, 0)]), (32, 64_000, [(1024, 0)])]  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
def test_skew_makes_no_step_shorter_and_none_longer_than_the_slowest_rank_is(
    step: tuple[int, int, list[tuple[int, int]]],
) -> None:
    even = load_profile(f"{R1}&ep=8")
    before, last = even.cost.step_s(*step), 0.0
    for skew in (0.1, 0.24, 0.38):
        uneven = load_profile(f"{R1}&ep=8&expert-skew={skew}")
        assert uneven.expert_load is not None
        took = uneven.cost.step_s(*step)
        assert max(before, last) <= took <= before * uneven.expert_load.slowest
        parts, was = uneven.cost.breakdown(*step), even.cost.breakdown(*step)
        assert parts.total_s == pytest.approx(took)
        assert parts.collective_s == pytest.approx(was.collective_s, rel=0.01)
        last = took


def test_steps_that_compute_suffer_more_than_those_that_read_weights() -> None:
    even, uneven = (load_profile(f"{R1}&ep=8{skew}").cost for skew in ("", "&expert-skew=0.38"))
    one = uneven.step_s(1, 2000) / even.step_s(1, 2000)
    long = uneven.step_s(0, 0, [(8192, 0)]) / even.step_s(0, 0, [(8192, 0)])
    assert 1.0 <= one < 1.02
    assert long > 1.1


def test_runs_equal_their_steps() -> None:
    cost = load_profile(f"{R1}&ep=8&expert-skew=0.24").cost
    expected = sum(cost.step_s(50, 50 * 900 + 50 * k) for k in range(40))
    assert cost.decode_run_s(50, 50 * 900, 40) == pytest.approx(expected)


def test_unsaid_nothing_changes_and_slices_of_experts_are_even() -> None:
    plain = load_profile(f"{R1}&ep=8")
    assert plain.expert_load is None
    sliced, asked = (load_profile(f"{R1}&ep=1{skew}").cost for skew in ("", "&expert-skew=0.38"))
    for step in STEPS:
        assert asked.step_s(*step) == sliced.step_s(*step)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("h200-sxm/qwen3-32b?expert-skew=0.2", "qwen3-32b is dense"),
        (f"{R1}&expert-skew=1", "a Gini coefficient, below 1"),
        (f"{R1}&expert-skew=even", "not a number"),
        (f"{R1}&expert-seed=0", "must be positive"),
        ("toy?expert-skew=0.2", "has no table, and so no expert-skew"),
    ],
)
def test_what_cannot_be_uneven_is_refused(name: str, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        load_profile(name)
