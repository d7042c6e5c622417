"""Legs that decode: what was handed over, and what is computed where it is decoded."""

from collections.abc import Callable

from decode_pool.pulls import Pull
from engine.simulated.gaps import Gaps
from engine.simulated.job import Job
from gateway.policy.retry import Next, after_decode_failure
from gateway.request.errors import Reason
from loadgen.simulate.desk import GATEWAY
from loadgen.simulate.flight import Flight, Leg
from loadgen.simulate.ground import Ground


class DecodeLegs:
    """`again`: the flight keeps its reservation and gets its KV by another way."""

    def __init__(self, ground: Ground, again: Callable[[Flight], None]) -> None:
        self._ground = ground
        self._again = again
        self.handoffs = 0

    def local(self, flight: Flight) -> None:
        assert flight.decode is not None
        leg = self._ground.new_leg(flight, flight.decode, prefill=False)
        leg.local = True
        self._start_later(flight, leg, None)

    def remote(self, flight: Flight, held: Leg) -> None:
        assert flight.decode is not None
        self._start_later(flight, self._ground.new_leg(flight, flight.decode, prefill=False), held)

    def _start_later(self, flight: Flight, leg: Leg, held: Leg | None) -> None:
        step, fleet, deadlines = flight.step, self._ground.fleet, self._ground.config.deadlines
        fleet.engines.at(fleet.now_s + fleet.layout.overheads.decode_s, lambda: self._start(flight, leg, held, step))
        fleet.engines.deadline(
            deadlines.first_token_s,
            lambda: self._late(flight, leg, step),
            lambda: flight.step != step or leg.first_s is not None,
        )

    def _start(self, flight: Flight, leg: Leg, held: Leg | None, step: int) -> None:
        if flight.step != step:
            return
        worker = leg.worker
        hold = worker.ledger.start(flight.reservation, GATEWAY, leg.tokens)
        if hold is None:
            self.failed(flight, Reason.DECODE_FAILED, of_the_way=False)
            return
        flight.hold = hold
        outgrows = flight.lengths or flight.bid.need.growth_tokens < flight.output_tokens
        if outgrows and self._ground.fleet.layout.admission:
            worker.overrun[leg.name] = hold
            self._ground.desk().look_again()
        if held is None:
            leg.submitted = True
            shared = flight.bid.prefix.hashes(worker.pool.limits.block_size)
            wanted = flight.output_tokens - flight.carried
            job = Job(leg.name, leg.tokens, wanted, shared, self._ground.priority(flight))
            self._ground.submit(worker, job)
            return
        flight.pull = Pull(worker.gate, lambda: self._pull(flight, leg, held))
        worker.gate.enter(flight.pull)

    def _pull(self, flight: Flight, leg: Leg, held: Leg) -> None:
        """The flight's turn to read has come."""
        leg.submitted = True
        worker, pool = leg.worker, leg.worker.pool
        job = Job(
            leg.name,
            leg.tokens,
            flight.output_tokens - flight.carried,
            flight.bid.prefix.hashes(pool.limits.block_size),
            # before prompts that are computed on the same worker: an answer has begun
            flight.bid.priority - (self._ground.roles is not None),
            external=held.tokens,
        )
        self._ground.fleet.engines.pull(
            worker.name,
            job,
            writer=held.worker.name,
            held=held.name,
            link=self._ground.fleet.link(held.worker.name, worker.name),
            block_bytes=pool.limits.block_size * pool.profile.kv_bytes_per_token,
        )

    def first(self, flight: Flight, leg: Leg) -> None:
        """The decode leg's first token: whatever it waited for is over."""
        now_s, worker = self._ground.fleet.now_s, leg.worker
        started_s = leg.started_s if leg.started_s is not None else now_s
        waited_until_s = leg.loading_s if leg.loading_s is not None else started_s
        flight.decode_queue_s += waited_until_s - leg.sent_s
        flight.transfer_s += started_s - waited_until_s
        if leg.local:
            flight.prefill_s += now_s - started_s
            flight.cached_tokens = max(flight.cached_tokens, leg.cached)
        flight.begins(now_s)
        if flight.pull is not None:
            self.handoffs += 1
            if self._ground.roles is not None:
                self._ground.roles.moved(flight.bid.request_id, worker)
            flight.pull.end()
            flight.pull = None
        if flight.held is not None:
            self._ground.no_longer_foreign(flight.held)
            flight.held = None
        self._ground.learn_prefix(worker, flight)

    def finished(self, flight: Flight, gaps: Gaps | None) -> None:
        assert flight.leg is not None
        flight.ends(self._ground.fleet.now_s, gaps)
        flight.leg.submitted = False  # the engine has ended it by itself
        self._ground.drop(flight)
        self._ground.done(flight)

    def outgrown(self, flight: Flight, leg: Leg, tokens: int) -> None:
        """The engine has given up an answer that its whole KV cannot hold; what it gave before, the client has."""
        given = flight.carried + (tokens - leg.tokens if leg.first_s is not None and not leg.prefill else 0)
        self._ground.drop(flight)
        self._ground.failed(flight, Reason.KV_CAPACITY, given)

    def _late(self, flight: Flight, leg: Leg, step: int) -> None:
        if flight.step == step and flight.leg is leg and leg.first_s is None:
            self.failed(flight, Reason.FIRST_TOKEN_TIMEOUT, of_the_way=False)

    def failed(self, flight: Flight, reason: Reason, *, of_the_way: bool) -> None:
        """A decode leg that failed before its first token may be tried once more."""
        leg = flight.leg
        assert leg is not None
        given = 0 if leg.first_s is None else 1
        following = after_decode_failure(flight.budget, True, given)
        if following is Next.GIVE_UP:
            self._ground.fail(flight, reason)
            return
        flight.budget = flight.budget.after_decode()
        now_s = self._ground.fleet.now_s
        flight.decode_queue_s += now_s - leg.sent_s
        if (of_the_way or reason is Reason.FIRST_TOKEN_TIMEOUT) and flight.held is not None:
            flight.avoid.add(flight.held.worker.name)
        if of_the_way:
            self._leave(flight, leg)
            self._again(flight)
            return
        if flight.decode is not None:
            flight.bid.avoid.add(flight.decode.name)
        self._ground.drop(flight)
        self._ground.desk().enter(flight)

    def _leave(self, flight: Flight, leg: Leg) -> None:
        """The reservation stays good; nothing runs under it any more."""
        flight.step += 1
        self._ground.flights.pop(leg.name, None)
        if leg.submitted and self._ground.alive(leg):
            self._ground.fleet.engines.abort(leg.worker.name, leg.name)
        if flight.held is not None:
            if not leg.submitted:
                self._ground.release(flight.held)
            self._ground.no_longer_foreign(flight.held)
        self._ground.unplug(flight, returned=True)
        flight.leg = flight.held = None
