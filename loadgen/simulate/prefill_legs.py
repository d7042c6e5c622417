"""Prompts that are computed by another worker than the one that decodes."""

from engine.simulated.job import Job
from gateway.policy.retry import Next, after_prefill_failure
from gateway.policy.routing import Path
from gateway.request.errors import Reason
from gateway.request.intent import Intent
from gateway.request.legs import Mode, remote_mode
from loadgen.simulate.decode_legs import DecodeLegs
from loadgen.simulate.flight import Flight, Leg
from loadgen.simulate.ground import Ground
from proto.sampling import Sampling

#: What the load generator's requests have in common; only the lengths differ.
_PLAIN = Intent("", "", ((0,),), 1, Sampling(1, temperature=0.0, ignore_eos=True), declared_max_tokens=True)


class PrefillLegs:
    """When one is over, its flight goes on with a decode leg."""

    def __init__(self, ground: Ground, decode: DecodeLegs) -> None:
        self._ground = ground
        self._decode = decode

    def begin(self, flight: Flight) -> None:
        decode = flight.decode
        assert decode is not None
        fleet = self._ground.fleet
        candidates = [
            one for one in fleet.view(flight.bid.prefix).partners(decode.name) if one.worker_id not in flight.failed
        ]
        chosen: str | None = flight.prefill_id
        if chosen not in {one.worker_id for one in candidates} - flight.avoid:
            chosen = fleet.layout.policies.choose_prefill(
                flight.prompt_tokens,
                decode.pool.profile.kv_bytes_per_token,
                candidates,
                fleet.links_of(decode.name),
                flight.avoid,
            )
        if chosen is None:
            self._ground.fail(flight, Reason.NO_PREFILL_WORKER)
            return
        worker = fleet.worker(chosen)
        leg = self._ground.new_leg(flight, worker, prefill=True)
        worker.prompt_sent(leg.tokens)
        step = flight.step
        overheads, deadline_s = fleet.layout.overheads, self._ground.config.deadlines.prefill_s
        fleet.engines.at(fleet.now_s + overheads.prefill_s, lambda: self._submit(flight, leg, step))
        fleet.engines.deadline(deadline_s, lambda: self._late(flight, leg, step), lambda: flight.step != step)

    def _submit(self, flight: Flight, leg: Leg, step: int) -> None:
        if flight.step != step:
            return
        leg.submitted = True
        worker = leg.worker
        leg.foreign = True
        worker.foreign += 1
        if worker.role.decodes and self._ground.fleet.layout.admission:
            self._ground.desk().look_again()
        shared = flight.bid.prefix.hashes(worker.pool.limits.block_size)
        job = Job(leg.name, leg.tokens, 1, shared, self._ground.priority(flight), hold=True)
        self._ground.submit(worker, job)

    def over(self, flight: Flight, leg: Leg) -> None:
        """The prompt is computed and its KV held; the token it gave is shown, or drawn again by the decode leg."""
        now_s, worker = self._ground.fleet.now_s, leg.worker
        self._ground.flights.pop(leg.name, None)
        self._ground.prefill_over(leg)
        started_s = leg.started_s if leg.started_s is not None else now_s
        worker.computed(leg.tokens - leg.cached, now_s - started_s, now_s)
        flight.queue_s += started_s - leg.sent_s
        flight.prefill_s += now_s - started_s
        flight.cached_tokens = max(flight.cached_tokens, leg.cached)
        flight.leg, flight.held = None, leg
        flight.step += 1
        if worker.role.decodes:
            self._ground.learn_prefix(worker, flight)
        if self._ground.fleet.layout.policies.thrown_away(flight):
            self._ground.fail(flight, Reason.DECODE_OVERLOADED)
            return
        if remote_mode(_PLAIN, leg.tokens, worker.pool.limits.block_size) is Mode.CARRY:
            flight.carried += 1
            flight.begins(now_s)
            if flight.carried >= flight.output_tokens:
                self._ground.drop(flight)
                self._ground.done(flight)
                return
        self._decode.remote(flight, leg)

    def _late(self, flight: Flight, leg: Leg, step: int) -> None:
        if flight.step == step and flight.leg is leg:
            self.failed(flight, leg, Reason.PREFILL_TIMEOUT)

    def failed(self, flight: Flight, leg: Leg, reason: Reason) -> None:
        """The one retry of a failed prefill, by policy."""
        assert flight.decode is not None
        self._end(flight, leg)
        flight.failed.add(leg.worker.name)
        partners = self._ground.fleet.view(flight.bid.prefix).partners(flight.decode.name)
        another = any(one.worker_id not in flight.failed for one in partners)
        policy = self._ground.config.routing.on_prefill_failure
        following = after_prefill_failure(policy, flight.budget, True, another)
        if following is Next.GIVE_UP:
            self._ground.fail(flight, reason)
            return
        flight.budget = flight.budget.after_prefill()
        if following is Next.LOCAL:
            flight.path = Path.LOCAL
            self._decode.local(flight)
        else:
            self.begin(flight)

    def _end(self, flight: Flight, leg: Leg) -> None:
        flight.step += 1
        self._ground.flights.pop(leg.name, None)
        self._ground.prefill_over(leg)
        if leg.submitted and self._ground.alive(leg):
            self._ground.fleet.engines.abort(leg.worker.name, leg.name)
        self._ground.no_longer_foreign(leg)
        flight.queue_s += self._ground.fleet.now_s - leg.sent_s
        flight.leg = None
