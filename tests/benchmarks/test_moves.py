"""The figures of what moving brings are those of a run, and a run without the policy moves nothing."""

import pytest

from benchmarks import moves


@pytest.mark.slow  # it simulates some minutes
def test_a_short_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "COMES_S", 5.0)
    monkeypatch.setattr(moves, "END_S", 20.0)
    monkeypatch.setitem(moves.SETTINGS, "moves", {"above": 0.1, "spread": 0.05})
    stays, moved = (moves.trial(balance, 0.3, 1) for balance in moves.SETTINGS.values())
    assert stays.moved == 0
    assert moved.moved > 0
    assert moved.spread < stays.spread
    assert moved.moved_gb > stays.moved_gb
    assert (stays.completed, stays.tokens) == (moved.completed, moved.tokens)
