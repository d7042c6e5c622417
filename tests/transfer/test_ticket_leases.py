"""The writer's table of leases: every lease ends once, and nothing that ended is found again."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.ticket import Ticket
from transfer.leases import TRANSITIONS, Leases, LeaseState

TICKET = Ticket("t", "w", "e", b"", 100, 7, 16, 1 << 20, lease_s=30.0)
ENDS = [LeaseState.RELEASED, LeaseState.READ, LeaseState.EXPIRED]


def test_an_ended_lease_never_holds_kv_again() -> None:
    assert TRANSITIONS[LeaseState.HELD] == frozenset(ENDS)
    assert all(LeaseState.HELD not in TRANSITIONS[state] for state in ENDS)


def test_a_release_that_came_after_the_reader_counts_as_a_read() -> None:
    leases = Leases()
    lease = leases.issue(TICKET, "r", 0.0)
    leases.end(lease, LeaseState.RELEASED)
    leases.was_read(lease)
    leases.was_read(lease)
    assert leases.totals == {**dict.fromkeys(LeaseState, 0), LeaseState.READ: 1}


@pytest.mark.parametrize("end", ENDS)
def test_a_lease_ends_once_and_is_gone(end: LeaseState) -> None:
    leases = Leases()
    lease = leases.issue(TICKET, "r", 0.0)
    assert leases.find(ticket_id="t") is lease
    assert leases.find(request_id="r") is lease
    assert leases.end(lease, end)
    assert not leases.end(lease, LeaseState.RELEASED)
    assert (len(leases), leases.find(ticket_id="t"), leases.find(request_id="r")) == (0, None, None)
    assert leases.totals[end] == 1


def table(*lengths_s: float) -> Leases:
    leases = Leases()
    for number, length in enumerate(lengths_s):
        leases.issue(replace(TICKET, ticket_id=f"t{number}", lease_s=length), f"r{number}", 0.0)
    return leases


def test_leases_that_lapsed_in_the_engine_are_forgotten_as_expired() -> None:
    leases = table(5.0, 30.0)
    assert leases.reconcile(6.0, held=1, expired=1) == 1
    assert leases.find(ticket_id="t0") is None
    assert leases.find(ticket_id="t1") is not None
    assert leases.totals[LeaseState.EXPIRED] == 1


def test_a_lease_that_a_reader_renews_lives_as_long_as_the_engine_holds_it() -> None:
    leases = table(5.0)
    assert leases.reconcile(60.0, held=1, expired=0) == 0
    assert leases.find(ticket_id="t0") is not None
    assert leases.reconcile(61.0, held=0, expired=0) == 1
    assert leases.totals[LeaseState.READ] == 1


def test_when_the_engine_holds_nothing_every_settled_lease_was_read() -> None:
    leases = table(30.0, 30.0)
    assert leases.reconcile(0.5, held=0, expired=0) == 0  # the engine's figure may be older than the tickets
    assert leases.reconcile(1.5, held=0, expired=0) == 2
    assert leases.totals[LeaseState.READ] == 2


def test_the_newest_ticket_of_a_request_is_the_one_found_by_it() -> None:
    leases = Leases()
    first = leases.issue(TICKET, "r", 0.0)
    second = leases.issue(replace(TICKET, ticket_id="t2"), "r", 1.0)
    leases.end(first, LeaseState.RELEASED)
    assert leases.find(request_id="r") is second


@given(st.lists(st.tuples(st.sampled_from(["issue", *ENDS]), st.integers(0, 20)), max_size=60))
def test_b45_the_table_is_exactly_what_was_issued_and_has_not_ended(
    steps: list[tuple[str | LeaseState, int]],
) -> None:
    leases, held = Leases(), set[str]()
    for step, number in steps:
        name = f"t{number}"
        if step == "issue":
            if name not in held:
                leases.issue(replace(TICKET, ticket_id=name), name, 0.0)
                held.add(name)
            continue
        lease = leases.find(ticket_id=name)
        assert (lease is not None) is (name in held)
        if lease is not None:
            leases.end(lease, LeaseState(step))
            held.discard(name)
    assert len(leases) == len(held) == leases.issued - sum(leases.totals.values())
