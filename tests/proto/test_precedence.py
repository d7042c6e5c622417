"""Who goes first among work that waits, as the one number that engines know."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from proto.precedence import Precedence, let_in, rank

PRIORITIES = st.integers(-(2**31), 2**31 - 1)


def test_an_answer_that_has_begun_goes_before_prompts_and_a_late_one_behind() -> None:
    ranks = [rank(0, each) for each in (Precedence.BEGUN, Precedence.ORDINARY, Precedence.LATE)]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == 3


@given(one=PRIORITIES, other=PRIORITIES)
def test_precedence_never_goes_past_a_priority(one: int, other: int) -> None:
    if one < other:
        assert all(rank(one, a) < rank(other, b) for a, b in product(Precedence, Precedence))


@given(priority=PRIORITIES, precedence=st.sampled_from(Precedence))
def test_once_let_in_everyone_of_a_priority_is_alike(priority: int, precedence: Precedence) -> None:
    assert let_in(rank(priority, precedence)) == rank(priority, Precedence.ORDINARY)
    assert let_in(let_in(rank(priority, precedence))) == rank(priority, Precedence.ORDINARY)
