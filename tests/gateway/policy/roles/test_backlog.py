"""Prompts in hand: who is computed when, and how much goes before a new one."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.roles.backlog import Backlog


def test_prompts_are_computed_in_order_of_arrival_but_late_ones_last() -> None:
    backlog = Backlog()
    backlog.add("late", 500, late=True)
    backlog.add("a", 300)
    backlog.add("b", 200)
    assert (backlog.tokens, backlog.ahead(50)) == (1000, 500)
    backlog.computed(400)
    assert (backlog.tokens, backlog.ahead(50)) == (600, 100)
    backlog.computed(200)
    assert (backlog.tokens, backlog.ahead(1000)) == (400, 400)  # the late one has begun


def test_one_that_is_late_and_has_begun_shares_with_those_that_came_after() -> None:
    backlog = Backlog()
    backlog.add("late", 1000, late=True)
    backlog.computed(100)
    assert not backlog.shared
    assert backlog.ahead(300) == 300
    backlog.add("a", 300)
    assert backlog.shared
    backlog.computed(400)
    assert (backlog.tokens, backlog.ahead(0)) == (800, 200)


def test_what_was_done_before_its_steps_were_told_is_not_counted_again() -> None:
    backlog = Backlog()
    backlog.add("a", 300)
    backlog.add("b", 200)
    backlog.done("a")
    backlog.computed(300)
    assert backlog.tokens == 200
    backlog.computed(50)
    assert backlog.tokens == 150


def test_what_was_dropped_was_never_computed() -> None:
    backlog = Backlog()
    backlog.add("a", 300)
    backlog.add("b", 200)
    backlog.drop("a")
    backlog.computed(50)
    assert backlog.tokens == 150


def test_nobody_waits_for_what_is_not_told_of_an_empty_worker() -> None:
    backlog = Backlog()
    backlog.add("a", 300)
    backlog.done("a")  # from a cache: no step will tell of it
    backlog.add("b", 200)
    backlog.computed(50)
    assert backlog.tokens == 150


@given(
    st.lists(st.tuples(st.sampled_from(["add", "late", "done", "drop", "computed"]), st.integers(0, 5)), max_size=50)
)
def test_nothing_is_owed_once_all_are_gone(events: list[tuple[str, int]]) -> None:
    backlog = Backlog()
    for what, number in events:
        if what in ("add", "late"):
            backlog.drop(str(number))
            backlog.add(str(number), 100 * number + 1, late=what == "late")
        elif what == "computed":
            backlog.computed(100 * number)
        else:
            getattr(backlog, what)(str(number))
        assert backlog.tokens >= 0
    for number in range(6):
        backlog.done(str(number))
    assert (len(backlog), backlog.tokens, backlog.ahead(100), backlog.shared) == (0, 0, 0, False)
