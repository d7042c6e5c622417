"""The hierarchy of classes: what it learns, from whom a thin class borrows, what it forgets."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gateway.policy.estimate import Estimate, Features, FinishedBy, Knobs, LengthModel, Prior
from tests.gateway.policy.estimate.draws import CHAT, Clock, feed, lognormal, model


def median(of: LengthModel, features: Features = CHAT) -> int:
    return of.estimate(features).quantile(0.5)


def test_before_anything_was_seen_the_prior_answers() -> None:
    prior = Prior(((0, 10), (0.5, 300), (1, 9000)))
    assert median(model(Knobs(prior=prior))) == pytest.approx(300, rel=0.03)


def test_a_model_may_have_a_prior_of_its_own_whatever_others_taught() -> None:
    lengths = model(Knobs(model_priors=(("new", Prior(((0, 1000), (0.5, 5000), (1, 30_000)))),)))
    feed(lengths, lognormal(100, 0.5, 500))
    assert median(lengths, replace(CHAT, model="new")) == pytest.approx(5000, rel=0.05)
    assert median(lengths, replace(CHAT, model="other")) == pytest.approx(100, rel=0.15)


def test_it_learns_the_lengths_of_a_class() -> None:
    lengths, seen = model(), lognormal(800, 1, 3000)
    feed(lengths, seen)
    estimate = lengths.estimate(CHAT)
    for q in (0.1, 0.5, 0.9):
        assert estimate.quantile(q) == pytest.approx(np.quantile(seen, q), rel=0.12)


def test_classes_of_tenant_task_and_prompt_differ(subtests: pytest.Subtests) -> None:
    for label, other in (
        ("tenant", replace(CHAT, tenant="b")),
        ("task", replace(CHAT, task="proof")),
        ("effort", replace(CHAT, effort="high")),
        ("prompt", replace(CHAT, prompt_tokens=5000)),
        ("tools", replace(CHAT, tools=True)),
        ("structured", replace(CHAT, structured=True)),
        ("budget", replace(CHAT, thinking_budget=8000)),
    ):
        with subtests.test(label):
            lengths = model()
            for mine, theirs in zip(lognormal(100, 0.5, 400), lognormal(5000, 0.5, 400, seed=1), strict=True):
                feed(lengths, [mine])
                feed(lengths, [theirs], other)
            assert median(lengths) == pytest.approx(100, rel=0.2)
            assert median(lengths, other) == pytest.approx(5000, rel=0.2)


def test_a_thin_class_leans_on_its_parent_and_leaves_it_as_it_fills() -> None:
    lengths, newcomer = model(), replace(CHAT, tenant="new")
    feed(lengths, lognormal(100, 0.3, 1000))
    medians = [median(lengths, newcomer)]
    for count in (3, 30, 300):
        feed(lengths, lognormal(3000, 0.3, count, seed=count), newcomer)
        medians.append(median(lengths, newcomer))
    assert medians[0] == pytest.approx(100, rel=0.1)
    assert medians[1] < 300
    assert medians[3] == pytest.approx(3000, rel=0.15)
    assert medians == sorted(medians)


def test_max_tokens_window_and_thinking_budget_cap() -> None:
    lengths = model()
    feed(lengths, lognormal(8000, 0.2, 300))
    assert lengths.estimate(CHAT, max_tokens=50).quantile(1) == 50
    assert lengths.estimate(CHAT, 5000, window_tokens=1100).quantile(1) == 1000
    assert lengths.estimate(CHAT, window_tokens=50).quantile(1) == 0
    thinking = lengths.estimate(replace(CHAT, thinking_budget=1000))
    assert thinking.quantile(0.5) == pytest.approx(1000 + 0.3 * 8000, rel=0.1)


def test_a_class_with_a_budget_that_has_learnt_is_not_capped_twice() -> None:
    lengths, thinker = model(), replace(CHAT, thinking_budget=1000)
    feed(lengths, [3400] * 300, thinker)
    assert median(lengths, thinker) == pytest.approx(3400, rel=0.03)


@pytest.mark.parametrize("by", [FinishedBy.LENGTH, FinishedBy.CLIENT_LEFT, FinishedBy.FAILED])
def test_answers_that_were_cut_never_count_as_true_lengths(by: FinishedBy) -> None:
    lengths = model()
    for number, tokens in enumerate(lognormal(2000, 0.5, 2000)):
        cap = 1000 if number % 2 else 1 << 20
        lengths.observe(CHAT, min(tokens, cap), by if tokens > cap else FinishedBy.STOP)
    assert median(lengths) == pytest.approx(2000, rel=0.1)


def test_an_answer_that_never_began_says_nothing() -> None:
    lengths = model()
    assert lengths.observe(CHAT, 0, FinishedBy.FAILED) == ()
    assert lengths.classes() == []


def test_old_lengths_fade_with_time() -> None:
    clock = Clock()
    lengths = model(Knobs(half_life_s=60, idle_s=1e6), clock)
    feed(lengths, lognormal(100, 0.3, 1000))
    clock.now_s = 1200.0
    assert median(lengths) == pytest.approx(500, rel=0.05), "back at the prior"


def test_estimates_are_cached_until_enough_is_new() -> None:
    lengths = model()
    feed(lengths, lognormal(500, 1, 1000))
    first = lengths.estimate(CHAT)
    assert lengths.estimate(CHAT) is first
    feed(lengths, lognormal(500, 1, 100, seed=1))
    assert lengths.estimate(CHAT) is not first


def test_what_was_learnt_survives_a_restart_as_json() -> None:
    clock = Clock()
    lengths = model(clock=clock)
    feed(lengths, lognormal(700, 1, 800))
    lengths.observe(replace(CHAT, tenant="b"), 300, FinishedBy.CLIENT_LEFT)
    clock.now_s = 100.0
    later = Clock()
    later.now_s = 1e6
    restored = LengthModel.restore(json.loads(json.dumps(lengths.document())), Knobs(), later)
    lengths.estimate(CHAT)
    assert np.array_equal(restored.estimate(CHAT).lengths, lengths.estimate(CHAT).lengths)
    assert restored.ledger.account(lengths.class_of(CHAT)) == lengths.ledger.account(lengths.class_of(CHAT))
    assert [each.key for each in restored.classes()] == [each.key for each in lengths.classes()]
    assert restored.document() == lengths.document()


@pytest.mark.parametrize("wrong", [{"schema": "other/1"}, {"accuracy": 0.01}])
def test_a_document_of_another_kind_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"other/1|0\.01"):
        LengthModel.restore(model().document() | wrong, Knobs(), Clock())


def test_classes_are_bounded_and_parents_outlive_their_children() -> None:
    lengths = model(Knobs(max_classes=20))
    for number in range(300):
        feed(lengths, [100], replace(CHAT, tenant=str(number)))
    keys = {each.key for each in lengths.classes()}
    assert len(keys) == 20
    assert all(key[:-1] in keys for key in keys if key)
    assert ("m", "chat", "299") in keys


def test_idle_classes_are_forgotten() -> None:
    clock = Clock()
    lengths = model(Knobs(idle_s=100), clock)
    feed(lengths, [10], replace(CHAT, tenant="old"))
    clock.now_s = 101.0
    feed(lengths, [10])
    assert not any("old" in each.key for each in lengths.classes())


def test_the_ledger_takes_the_estimate_of_admission_and_feeds_headroom() -> None:
    lengths = model()
    for _ in range(100):
        lengths.observe(CHAT, 200, FinishedBy.STOP, Estimate.exactly(100))
    assert lengths.headroom(CHAT) == pytest.approx(2, rel=0.03)
    assert lengths.ledger.account(lengths.class_of(CHAT)).under_tokens == 100 * 100


def test_an_operator_sees_every_class_and_its_parameters() -> None:
    lengths = model()
    feed(lengths, lognormal(500, 1, 100))
    shown = {each.key: each for each in lengths.classes()}
    assert set(shown) == {(), ("m",), ("m", "chat"), ("m", "chat", "a"), ("m", "chat", "a", "prompt≤128")}
    assert shown[()].observations == 100
    assert shown[()].worth == pytest.approx(95, rel=0.1)


class Fixed:
    def predict(self, features: Features) -> Estimate | None:
        return Estimate.exactly(77) if features.tenant == "a" else None


def test_a_predictor_takes_the_place_of_the_classes_where_it_answers() -> None:
    lengths = LengthModel(Knobs(), Clock(), Fixed())
    assert lengths.estimate(CHAT).quantile(0.9) == 77
    assert lengths.estimate(CHAT, max_tokens=50).quantile(0.9) == 50
    assert lengths.estimate(replace(CHAT, tenant="b")).quantile(0.5) == pytest.approx(500, rel=0.03)


def test_answers_under_way_keep_a_beginning_from_looking_short() -> None:
    """Of 200 answers that began together only the short ones have ended; the others are known to be longer."""
    clock = Clock()
    lengths, alone = model(clock=clock), model(clock=clock)
    truth = lognormal(2000, 0.8, 200)
    ended = [tokens for tokens in truth if tokens <= 1500]
    feed(alone, ended)
    lengths.running((CHAT, 1) for _ in truth)
    feed(lengths, ended)
    lengths.running((CHAT, 1500) for _ in truth[len(ended) :])
    clock.now_s = Knobs().refresh_s
    assert median(alone) < 1300
    assert median(lengths) == pytest.approx(2000, rel=0.15)


def test_answers_under_way_fade_as_others_come_and_go() -> None:
    clock = Clock()
    lengths = model(clock=clock)
    feed(lengths, lognormal(500, 0.5, 300))
    before = median(lengths)
    seen = []
    for _ in range(8):
        lengths.running((CHAT, 2_000) for _ in range(300))
        clock.now_s += Knobs().refresh_s
        seen.append(median(lengths))
        feed(lengths, lognormal(500, 0.5, 600))
    assert seen[0] > 1.3 * before
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == pytest.approx(before, rel=0.08)


def test_fifty_answers_that_have_all_come_far_are_no_chat() -> None:
    """Long before the first of them ends, the next one is expected to be long."""
    clock = Clock()
    lengths = model(clock=clock)
    lengths.running((CHAT, 600) for _ in range(50))
    clock.now_s = Knobs().refresh_s
    short, middle = (lengths.estimate(CHAT).quantile(level) for level in (0.1, 0.5))
    assert short > 700
    assert middle > 1_800


def test_answers_under_way_count_before_the_first_of_their_class_has_ended() -> None:
    clock = Clock()
    lengths = model(clock=clock)
    before = median(lengths)
    lengths.running((CHAT, 4 * before) for _ in range(50))
    clock.now_s = Knobs().refresh_s
    assert median(lengths) > 4 * before


def test_what_was_learnt_is_in_the_tables_before_the_next_request_asks() -> None:
    lengths = model()
    for number, tokens in enumerate(lognormal(800, 1, 200)):
        lengths.observe(CHAT, int(tokens), FinishedBy.STOP)
        tables = [each.table for each in lengths._classes.values()]
        lengths.estimate(CHAT)
        assert [each.table for each in lengths._classes.values()] == tables, number
