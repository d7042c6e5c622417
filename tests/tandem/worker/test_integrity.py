"""Every disagreement between the accounts is found, and only if it lasts."""

from dataclasses import fields, replace

import pytest

from tandem.worker.integrity import Counts, Watchman, drift

ZERO = Counts(**{field.name: 0 for field in fields(Counts)})
BUSY = replace(
    ZERO,
    live=5,
    aborting=1,
    prefills=2,
    sequences=4,
    pulls=1,
    ledger_live=4,
    reserved_blocks=40,
    recounted_blocks=40,
    leases=3,
    engine_running=4,
    engine_waiting=2,
    engine_blocks_used=30,
    engine_tickets=2,
)


def test_agreement_is_silent() -> None:
    assert drift(ZERO) == ()
    assert drift(BUSY) == ()
    assert drift(replace(ZERO, engine_tickets=1, leases=1, engine_blocks_used=3)) == ()


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (replace(BUSY, recounted_blocks=39), "40 blocks reserved, 39"),
        (replace(BUSY, ledger_live=5), "4 sequences, 5 in the ledger"),
        (replace(BUSY, live=7), "7 requests routed"),
        (replace(BUSY, engine_waiting=3), "the engine has 7 requests, 6"),
        (replace(BUSY, leases=1), "the engine holds 2 tickets, 1"),
        (replace(BUSY, pulls=5), "5 pulls under way"),
        (replace(ZERO, engine_blocks_used=2), "2 KV blocks at idle"),
    ],
)
def test_each_disagreement_is_named(counts: Counts, words: str) -> None:
    (found,) = drift(counts)
    assert words in found


def test_only_what_lasts_is_reported() -> None:
    watchman, wrong = Watchman(patience_s=2.0), replace(BUSY, ledger_live=5)
    assert watchman.look(wrong, 10.0) == ()
    assert watchman.look(BUSY, 11.0) == ()
    assert watchman.look(wrong, 12.0) == ()
    assert watchman.look(wrong, 13.9) == ()
    assert watchman.look(wrong, 14.0) != ()
    assert watchman.look(BUSY, 15.0) == ()
