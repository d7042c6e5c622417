"""What every random life of a ledger has in common: answers end, reservations are given back, time passes."""

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from decode_pool.ledger import Hold, Ledger


class LedgerMachine(RuleBasedStateMachine):
    """`open` are reservations that were granted, ended ones among them; `holds` what runs. `pass_s` moves the clock."""

    def __init__(self, ledger: Ledger, pass_s: Callable[[float], None]) -> None:
        super().__init__()
        self.ledger = ledger
        self.open: list[str] = []
        self.holds: list[Hold] = []
        self._pass_s = pass_s

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), returned=st.booleans())
    def end(self, data: st.DataObject, returned: bool) -> None:
        hold = data.draw(st.sampled_from(self.holds))
        self.holds.remove(hold)
        hold.end(returned=returned)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.ledger.release(data.draw(st.sampled_from(self.open)))

    @rule(seconds=st.floats(0, 15))
    def wait(self, seconds: float) -> None:
        self._pass_s(seconds)
        self.ledger.expire()

    def teardown(self) -> None:
        for hold in self.holds:
            hold.end()
        self._pass_s(1_000.0)
        self.ledger.expire()
        assert (self.ledger.reservations, self.ledger.reserved_blocks, self.ledger.live) == (0, 0, 0)
