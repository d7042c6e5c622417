"""Growth, prefixes, retries and the queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import OnPrefillFailure
from gateway.policy.admission import RETRY_AFTER_MAX_S, RETRY_AFTER_MIN_S, DrainRate, Entry, FifoQueue
from gateway.policy.estimate import growth_tokens
from gateway.policy.prefix import PrefixIndex, PrefixKey, block_hashes
from gateway.policy.retry import Budget, Next, after_decode_failure, after_expiry, after_prefill_failure


@pytest.mark.parametrize(
    ("declared", "window", "growth"), [(200, 4096, 200), (None, 4096, 1024), (None, 300, 200), (5000, 300, 200)]
)
def test_b71_growth(declared: int | None, window: int, growth: int) -> None:
    assert growth_tokens(1, declared, 1024, window, 100) == growth
    assert growth_tokens(3, declared, 1024, window, 100) == 3 * growth


def test_growth_is_never_negative() -> None:
    assert growth_tokens(2, None, 1024, 50, 100) == 0


PROMPT = tuple(range(100))


def test_a_prefix_is_found_up_to_where_it_differs() -> None:
    index = PrefixIndex(100, 16)
    index.insert(block_hashes(PROMPT, 16, "a"))
    assert index.cached_tokens(block_hashes(PROMPT, 16, "a")) == 96
    assert index.cached_tokens(block_hashes((*PROMPT, 1, 2, 3), 16, "a")) == 96
    assert index.cached_tokens(block_hashes((*PROMPT[:40], 7, *PROMPT[41:]), 16, "a")) == 32
    assert index.cached_tokens(block_hashes((7, *PROMPT[1:]), 16, "a")) == 0


def test_another_salt_shares_nothing() -> None:
    index = PrefixIndex(100, 16)
    index.insert(block_hashes(PROMPT, 16, "tenant-a"))
    assert index.cached_tokens(block_hashes(PROMPT, 16, "tenant-b")) == 0


def test_the_index_is_bounded_and_forgets_the_ends_of_chains_first() -> None:
    index = PrefixIndex(4, 16)
    index.insert(block_hashes(PROMPT, 16, ""))
    assert len(index) == 4
    assert index.cached_tokens(block_hashes(PROMPT, 16, "")) == 64
    index.insert(block_hashes(tuple(range(500, 532)), 16, ""))
    assert len(index) == 4
    assert index.cached_tokens(block_hashes(PROMPT, 16, "")) == 32


@given(st.lists(st.integers(0, 50), max_size=80), st.lists(st.integers(0, 50), max_size=80))
def test_the_index_never_claims_more_than_the_common_prefix(one: list[int], other: list[int]) -> None:
    index = PrefixIndex(1000, 4)
    index.insert(block_hashes(one, 4, ""))
    common = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert index.cached_tokens(block_hashes(other, 4, "")) == common // 4 * 4


def test_a_prompt_is_hashed_once_a_block_size() -> None:
    key = PrefixKey(PROMPT, "")
    assert key.hashes(16) is key.hashes(16)
    assert len(key.hashes(32)) == 3


@pytest.mark.parametrize(
    ("policy", "another", "following"),
    [
        (OnPrefillFailure.OTHER_THEN_LOCAL, True, Next.OTHER),
        (OnPrefillFailure.OTHER_THEN_LOCAL, False, Next.LOCAL),
        (OnPrefillFailure.OTHER, True, Next.OTHER),
        (OnPrefillFailure.OTHER, False, Next.GIVE_UP),
        (OnPrefillFailure.LOCAL, True, Next.LOCAL),
        (OnPrefillFailure.FAIL, True, Next.GIVE_UP),
    ],
)
def test_the_one_retry_of_a_prefill(policy: OnPrefillFailure, another: bool, following: Next) -> None:
    budget = Budget()
    assert after_prefill_failure(policy, budget, True, another) is following
    assert after_prefill_failure(policy, budget, False, another) is Next.GIVE_UP
    assert after_prefill_failure(policy, budget.after_prefill(), True, another) is Next.GIVE_UP


def test_the_one_retry_of_a_decode_leg() -> None:
    assert after_decode_failure(Budget(), True, 0) is Next.AGAIN
    assert after_decode_failure(Budget(), True, 1) is Next.GIVE_UP
    assert after_decode_failure(Budget(), False, 0) is Next.GIVE_UP
    assert after_decode_failure(Budget().after_decode(), True, 0) is Next.GIVE_UP


def test_b31_expired_tickets_are_prefilled_again_but_not_for_ever() -> None:
    budget = Budget()
    assert after_expiry(budget) is Next.OTHER
    assert after_expiry(budget.after_expiry()) is Next.OTHER
    assert after_expiry(budget.after_expiry().after_expiry()) is Next.GIVE_UP


@given(st.lists(st.sampled_from(["prefill", "decode", "expiry"]), max_size=12))
def test_one_prompt_is_computed_three_times_at_most(failures: list[str]) -> None:
    budget, computed, kinds = Budget(), 1, list[str]()
    for failure in failures:
        match failure:
            case "prefill":
                following = after_prefill_failure(OnPrefillFailure.OTHER_THEN_LOCAL, budget, True, True)
                after = budget.after_prefill()
            case "decode":
                following, after = after_decode_failure(budget, True, 0), budget.after_decode()
            case _:
                following, after = after_expiry(budget), budget.after_expiry()
        if following is Next.GIVE_UP:
            break
        budget, computed = after, computed + 1
        kinds.append(failure)
    assert computed <= 3
    assert kinds.count("prefill") <= 1
    assert kinds.count("decode") <= 1


@given(st.lists(st.sampled_from(["push", "pop", "again", "leave"]), max_size=60))
def test_the_queue_keeps_the_order_of_arrival_whatever_happens(moves: list[str]) -> None:
    queue: FifoQueue[int] = FifoQueue(100)
    popped: list[Entry[int]] = []
    waiting: list[Entry[int]] = []
    for move in moves:
        if move == "push":
            entry = Entry(queue.arrive(), 0)
            queue.push(entry)
            waiting.append(entry)
        elif move == "again" and popped:
            entry = popped.pop()
            queue.push(entry)
            waiting.append(entry)
        elif waiting:
            waiting.sort()
            assert queue.head is waiting[0]
            entry = waiting.pop(0 if move == "pop" else -1)
            assert queue.remove(entry)
            assert not queue.remove(entry)
            popped += [entry] if move == "pop" else []
        assert len(queue) == len(waiting)


def test_the_limit_counts_who_waits() -> None:
    queue: FifoQueue[str] = FifoQueue(1)
    for _ in range(2):
        assert not queue.over_limit
        queue.push(Entry(queue.arrive(), "x"))
    assert queue.over_limit


def test_retry_after_follows_the_rate_at_which_places_come_free() -> None:
    rate = DrainRate()
    assert rate.retry_after_s(5, 0.0) == RETRY_AFTER_MIN_S
    for second in range(11):
        rate.admitted(float(second))
    assert rate.per_s(10.0) == pytest.approx(1.0)
    assert rate.retry_after_s(9, 10.0) == pytest.approx(10.0)
    assert rate.retry_after_s(10_000, 10.0) == RETRY_AFTER_MAX_S
    assert rate.retry_after_s(9, 20.0) > 10.0  # nobody has been admitted since
