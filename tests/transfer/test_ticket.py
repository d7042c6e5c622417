"""A ticket never outlives its lease, its epoch or its blocks, whoever holds it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.fault import FaultKind
from proto.ticket import Ticket
from transfer.ticket import HeldTicket, blocks_for, boundary_fault, objection

TICKET = Ticket("t1", "w1", "e1", b"", 100, 7, 16, 1 << 20, lease_s=30.0)
SECONDS = st.floats(0, 1e6)
SIZES = st.sampled_from([1, 2, 16, 128])


@given(st.integers(0, 100_000), SIZES)
def test_blocks_are_the_smallest_number_that_holds_the_tokens(tokens: int, size: int) -> None:
    blocks = blocks_for(tokens, size)
    assert blocks * size >= tokens
    assert (blocks - 1) * size < tokens


@given(st.integers(1, 5_000), SIZES)
def test_the_tokens_computed_always_fit_and_one_more_fits_unless_it_starts_a_block(computed: int, size: int) -> None:
    held = blocks_for(computed, size)
    assert boundary_fault(computed, size, held) is None
    assert (boundary_fault(computed + 1, size, held) is None) is (computed % size != 0)


@given(st.integers(1, 5_000), st.integers(-10, 10_000), SIZES)
def test_what_fits_fills_exactly_the_blocks_that_the_writer_holds(computed: int, sent: int, size: int) -> None:
    held = blocks_for(computed, size)
    assert (boundary_fault(sent, size, held) is None) is (sent > 0 and blocks_for(sent, size) == held)


@given(age=st.floats(0, 100), lease=st.floats(0.001, 100), received=SECONDS, held=st.floats(0, 200), margin=SECONDS)
def test_b31_a_usable_ticket_has_more_than_the_margin_left(
    age: float, lease: float, received: float, held: float, margin: float
) -> None:
    ticket = HeldTicket(replace(TICKET, age_s=age, lease_s=lease), received)
    now = received + held
    if ticket.usable(now, margin):
        assert ticket.age_s(now) + margin < lease + 1e-6
    else:
        assert ticket.age_s(now) + margin >= lease - 1e-6


@given(st.lists(st.floats(0, 20), min_size=1, max_size=5))
def test_age_adds_up_over_every_hand_the_ticket_passes(stays: list[float]) -> None:
    ticket, clock = TICKET, 0.0
    for stay in stays:
        clock += 1000.0  # every holder has a clock of its own
        ticket = HeldTicket(ticket, clock).sent(clock + stay)
    assert ticket.age_s == pytest.approx(sum(stays))
    assert ticket == replace(TICKET, age_s=ticket.age_s)


@given(st.floats(0, 1e9), st.floats(0, 100))
def test_a_clock_that_steps_back_never_makes_a_ticket_younger(received: float, back: float) -> None:
    assert HeldTicket(TICKET, received).age_s(received - back) == TICKET.age_s


def test_nothing_speaks_against_a_fresh_ticket() -> None:
    assert objection(HeldTicket(TICKET, 5.0), 100, 6.0, margin_s=2.0, writer_epoch="e1") is None
    assert objection(HeldTicket(TICKET, 5.0), 101, 6.0) is None


def test_b31_an_old_ticket_is_refused_with_its_age() -> None:
    fault = objection(HeldTicket(replace(TICKET, age_s=1.0), 5.0), 100, 32.5, margin_s=2.0)
    assert fault is not None
    assert fault.kind is FaultKind.TICKET_EXPIRED
    assert fault.numbers == {"age_s": 28.5, "lease_s": 30.0, "margin_s": 2.0}


def test_b51_a_ticket_of_an_earlier_epoch_is_stale_however_fresh() -> None:
    fault = objection(HeldTicket(TICKET, 5.0), 100, 5.0, writer_epoch="e2")
    assert fault is not None
    assert fault.kind is FaultKind.TICKET_STALE


@pytest.mark.parametrize(("sent", "needed"), [(113, 8), (96, 6), (1, 1), (0, 0)])
def test_a_ticket_for_other_blocks_is_refused_with_the_numbers(sent: int, needed: int) -> None:
    """One too few is as bad as one too many: the reader would take the wrong end of the prompt."""
    fault = objection(HeldTicket(TICKET, 5.0), sent, 5.0)
    assert fault is not None
    assert fault.kind is FaultKind.TICKET_BOUNDARY
    assert fault.numbers == {"tokens": sent, "blocks_needed": needed, "blocks_held": 7}
