"""Allowed and spent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.fairness.budget import FairBounds, FairnessBudget, Measure, Outcome
from gateway.policy.fairness.claim import Band
from tests.gateway.policy.fairness.serving import UNHURRIED, Server, claim, queue_of

BOUNDS = FairBounds(incomplete_share=0.1, slowdown=4.0, slow_share=0.2, abandoned_share=0.05)


def budget(least: int = 1) -> FairnessBudget:
    return FairnessBudget(classes={"chat": BOUNDS}, window_s=100.0, least=least)


def completed(into: FairnessBudget, slowdown: float, now_s: float = 0.0, klass: str = "chat") -> None:
    into.ended(klass, Outcome.COMPLETED, now_s, e2e_s=2.0 * slowdown, unloaded_s=2.0)


def test_r20_each_class_has_a_row() -> None:
    book = budget()
    for slowdown in range(1, 100):
        completed(book, slowdown, now_s=float(slowdown))
    book.ended("chat", Outcome.REJECTED, 99.0)
    completed(book, 1.0, 99.0, "batch")
    batch, chat = book.snapshot(99.0)
    assert (batch.klass, chat.klass) == ("batch", "chat")
    assert (chat.slowdown_p50, chat.slowdown_p99) == (50.0, 99.0)
    assert (chat.outcomes[Outcome.COMPLETED], chat.outcomes[Outcome.REJECTED], chat.outcomes[Outcome.FAILED]) == (
        99,
        1,
        0,
    )
    assert chat.span_s == 98.0
    assert chat.spending[Measure.SLOWDOWN].share == pytest.approx(95 / 99)


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.COMPLETED])
def test_whatever_is_not_completed_spends_the_budget_of_completion(outcome: Outcome) -> None:
    book = budget()
    for _ in range(9):
        completed(book, 1.0)
    book.ended("chat", outcome, 0.0)
    spending = book.spending("chat", 0.0)
    assert spending[Measure.COMPLETION].spent == pytest.approx(1.0)
    assert spending[Measure.ABANDONMENT].spent == pytest.approx(2.0 if outcome is Outcome.ABANDONED else 0.0)
    assert spending[Measure.SLOWDOWN].spent == 0.0


def test_r19_an_alarm_when_it_is_spent_and_none_when_the_window_has_moved_on() -> None:
    book = budget(least=10)
    for step in range(10):
        assert book.alarms(0.0) == []  # too few to tell
        completed(book, 5.0 if step < 3 else 1.0, now_s=0.0 if step < 3 else 50.0)
    (alarm,) = book.alarms(50.0)
    assert (alarm.klass, alarm.measure) == ("chat", Measure.SLOWDOWN)
    assert alarm.spending.spent == pytest.approx(1.5)
    for _ in range(10):
        completed(book, 1.0, 60.0)
    assert book.alarms(60.0) == []
    assert book.spending("chat", 60.0)[Measure.SLOWDOWN].spent == pytest.approx(0.75)
    assert book.spending("chat", 101.0)[Measure.SLOWDOWN].spent == 0.0


def spent_by_long_ones(short: Band) -> float:
    """Long and short requests of one tenant, at 90 % of what the server can do."""
    arrivals = [
        (11.1 * step, each)
        for step in range(300)
        for each in (claim("a", 5.0, "long"), *[claim("a", 1.0, "short", short)] * 5)
    ]
    book = FairnessBudget(classes={"long": FairBounds(slowdown=1.8)}, window_s=1e9)
    for done in Server(queue_of()).run(arrivals):
        took_s = done.item.expected_output_tokens
        book.ended(done.item.klass, Outcome.COMPLETED, 0.0, e2e_s=done.waited_s + took_s, unloaded_s=took_s)
    return book.spending("long", 0.0)[Measure.SLOWDOWN].spent


def test_r19_priority_for_short_ones_is_seen_as_spent_slowdown_of_long_ones() -> None:
    assert spent_by_long_ones(Band.NORMAL) < 1 < spent_by_long_ones(Band.HIGH)


def test_the_worst_alarm_comes_first() -> None:
    book = budget()
    completed(book, 1.0)
    book.ended("chat", Outcome.ABANDONED, 0.0)
    assert [alarm.measure for alarm in book.alarms(0.0)] == [Measure.ABANDONMENT, Measure.COMPLETION]


def test_a_report_names_only_budgets_that_enough_requests_have_spent() -> None:
    book = budget(least=2)
    book.ended("chat", Outcome.REJECTED, 0.0)
    (few,) = book.snapshot(0.0)
    assert few.spending[Measure.COMPLETION].spent == pytest.approx(10.0)
    assert few.alarms == ()
    book.ended("chat", Outcome.REJECTED, 0.0)
    (enough,) = book.snapshot(0.0)
    assert enough.alarms == (Measure.COMPLETION,)


def test_an_empty_window_has_spent_nothing() -> None:
    book = budget()
    assert book.spending("never seen", 0.0)[Measure.COMPLETION].spent == 0.0
    book.ended("chat", Outcome.FAILED, 0.0)
    (report,) = book.snapshot(1000.0)
    assert (report.span_s, report.slowdown_p50, report.spending[Measure.COMPLETION].of) == (0.0, None, 0)


def test_the_window_holds_so_many_at_most() -> None:
    book = FairnessBudget(window_s=1e9, most=10)
    for _ in range(100):
        book.ended("", Outcome.FAILED, 0.0)
    for _ in range(10):
        completed(book, 1.0, klass="")
    assert book.spending("", 0.0)[Measure.COMPLETION] == book.spending("", 1.0)[Measure.COMPLETION]
    assert book.spending("", 0.0)[Measure.COMPLETION].bad == 0


ENDINGS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(Outcome), st.integers(1, 9)), max_size=80)


@UNHURRIED
@given(ENDINGS)
def test_the_counts_are_those_of_the_window(endings: list[tuple[int, Outcome, int]]) -> None:
    book, now_s, kept = budget(), 0.0, list[tuple[float, Outcome, int]]()
    for pause_s, outcome, slowdown in endings:
        now_s += pause_s
        book.ended("chat", outcome, now_s, e2e_s=float(slowdown), unloaded_s=1.0)
        kept = [each for each in [*kept, (now_s, outcome, slowdown)] if each[0] > now_s - 100.0]
        spending = book.spending("chat", now_s)
        done = [each for each in kept if each[1] is Outcome.COMPLETED]
        assert (spending[Measure.COMPLETION].bad, spending[Measure.COMPLETION].of) == (len(kept) - len(done), len(kept))
        assert (spending[Measure.SLOWDOWN].bad, spending[Measure.SLOWDOWN].of) == (
            sum(each[2] > 4 for each in done),
            len(done),
        )
