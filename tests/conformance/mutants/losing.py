"""Failures: what is lost, leaves or comes back."""

from tests.conformance.mutations import Mutation

PROMPT = "gateway/request/prompt.py"
LOSE = "tests/conformance/test_losing.py::test_"

MUTATIONS = (
    Mutation(
        "B-48",
        "the second prefill goes to the worker whose KV did not arrive",
        PROMPT,
        "            self._avoid.add(self._job.record.prefill_worker)\n",
        "            pass\n",
        f"{LOSE}b48_kv_that_does_not_arrive_is_computed_again_elsewhere",
    ),
    Mutation(
        "B-49",
        "what was in flight when the engine died never hears of it",
        "engine/dispatcher.py",
        "            self._deliver(route.owner, [(route.key, EngineOutput(name, delta))])\n",
        "            del route, name\n",
        "tests/engine/test_dispatcher.py::test_b49_death_ends_everything_in_flight_with_a_fault_at_once",
    ),
    Mutation(
        "B-50",
        "a drain does not wait for KV that somebody may read",
        "tandem/worker/state.py",
        "            + self.dispatcher.stats().tickets_held\n",
        "",
        "tests/tandem/worker/test_service.py::test_b50_a_drain_waits_for_kv_that_a_reader_has_not_read",
    ),
    Mutation(
        "B-51",
        "a pair that keeps failing is used for ever",
        "gateway/cluster/pairs.py",
        "        if pair.failures >= self._config.pair_failures_to_quarantine:\n",
        "        if False:\n",
        f"{LOSE}b51_a_ticket_of_the_epoch_before_is_stale_and_the_pair_that_keeps_failing_rests",
    ),
    Mutation(
        "B-51",
        "a worker in a new epoch is taken for the old one",
        "gateway/cluster/roster.py",
        "if worker is None or worker.info.epoch != info.epoch or",
        "if worker is None or",
        f"{LOSE}b51_a_worker_back_on_its_address_is_a_stranger",
    ),
)
