"""Any order of what two gateways may do to one ledger."""

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from decode_pool.expected import Admission
from decode_pool.ledger import Load
from proto.reservation import Reservation
from tests.decode_pool.granting import SHAPE, Worker
from tests.decode_pool.ledger_machine import LedgerMachine
from tests.examples import examples
from tests.gateway.policy.admission.families import lognormal


class TwoGateways(LedgerMachine):
    """Any order of what two gateways may do."""

    def __init__(self) -> None:
        self.worker = Worker(Admission(epsilon=0.01, pool_share=0.05, spread=0.1))
        super().__init__(self.worker.ledger, self.worker.forward)

    @rule(
        median=st.integers(20, 300),
        prompt=st.integers(1, 400),
        sequences=st.integers(1, 3),
        gateway=st.sampled_from(["g1", "g2"]),
        estimated=st.booleans(),
        arrival_s=st.floats(0, 5),
    )
    def reserve(
        self, median: int, prompt: int, sequences: int, gateway: str, estimated: bool, arrival_s: float
    ) -> None:
        ledger, load = self.ledger, Load(step_time_s=0.02)
        ledger.expire()
        alone = not ledger.reservations
        estimate = lognormal(median, 0.6) if estimated else None
        reply = self.worker.ask(estimate, prompt, sequences, gateway, median * sequences, arrival_s, load)
        if isinstance(reply, Reservation):
            self.open.append(reply.reservation_id)
            pool = ledger.expected.budget.pool_blocks if len(ledger.expected) else 0
            assert alone or ledger.promised_blocks(load) <= SHAPE.blocks_total - pool + 1e-6
            assert ledger.committed(load) <= SHAPE.blocks_total

    @rule(generated=st.integers(0, 2_000), prompt=st.integers(1, 400), estimated=st.booleans())
    def emergency(self, generated: int, prompt: int, estimated: bool) -> None:
        """Whatever was promised, more is not held than there is. Afterwards that may be promised to nobody else."""
        ledger, load = self.ledger, Load(step_time_s=0.02)
        estimate = lognormal(200, 0.6) if estimated else None
        tokens = prompt + generated
        reply = self.worker.ask(estimate, tokens, growth=16, load=load, generated=generated, emergency=True)
        if isinstance(reply, Reservation):
            self.open.append(reply.reservation_id)
            assert ledger.committed(load) <= SHAPE.blocks_total

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.open))
        grant = self.ledger.grants.named(name)
        if grant is not None:
            hold = self.ledger.start(name, grant.request.gateway_id, grant.request.prompt_tokens)
            if hold is not None:
                self.holds.append(hold)

    @rule(tokens=st.integers(1, 30))
    def step(self, tokens: int) -> None:
        for hold in self.holds:
            hold.advance(tokens)

    @invariant()
    def the_book_and_the_grants_agree(self) -> None:
        ledger = self.ledger
        grants = [grant for grant in ledger.grants if grant.forecast]
        assert len(ledger.expected) == len(ledger.expected.book) == sum(g.unstarted + len(g.live) for g in grants)
        assert ledger.reserved_blocks == ledger.recounted() >= 0
        assert ledger.charges.certain == sum(grant.charge.certain for grant in ledger.grants)
        assert ledger.charges.waiting == sum(grant.charge.waiting for grant in ledger.grants)

    def teardown(self) -> None:
        super().teardown()
        ledger = self.ledger
        assert (ledger.reservations, ledger.reserved_blocks, ledger.live, len(ledger.expected)) == (0, 0, 0, 0)
        assert (ledger.charges.certain, ledger.charges.waiting, ledger.expected._running) == (0, 0, 0)
        assert ledger.promised_blocks(Load()) == 0
        assert not ledger.expected.book.totals.any()


TestTwoGateways = TwoGateways.TestCase
TestTwoGateways.settings = examples(40, stateful_step_count=30)
