"""Failures: who is told, and who is blamed."""

from tests.conformance.mutations import Mutation

FAIL = "tests/conformance/test_failing.py::test_"

MUTATIONS = (
    Mutation(
        "B-38",
        "a prompt that is too long for prefill is tried on decode",
        "gateway/request/failures.py",
        "    FaultKind.CONTEXT_LENGTH: Reason.CONTEXT_LENGTH,\n",
        "",
        f"{FAIL}b38_a_prompt_too_long_for_the_prefill_worker_is_refused_at_once",
    ),
    Mutation(
        "B-39",
        "a prefill is waited for although its decode worker is lost",
        "gateway/request/prefilling.py",
        "{leg, lapsed, decode.connection.attachment.ended, enough}",
        "{leg, lapsed, enough}",
        f"{FAIL}b39_a_prefill_whose_decode_worker_is_lost_stops_at_once",
    ),
    Mutation(
        "B-39",
        "what could not be released over a broken connection is forgotten",
        "gateway/request/holds.py",
        "        worker.owed.append(call)\n",
        "        pass\n",
        f"{FAIL}b39_a_prefill_whose_decode_worker_is_lost_stops_at_once",
    ),
    Mutation(
        "B-40",
        "without prefill workers decode computes prompts, whatever the policy",
        "gateway/policy/routing.py",
        "    if rules.prefill_here_if_none:\n",
        "    if True:\n",
        f"{FAIL}b40_without_prefill_workers_the_policy_is_explicit_and_said",
    ),
    Mutation(
        "B-42",
        "a prefill has no deadline",
        "gateway/request/prefilling.py",
        "client.prefill(work, deadline_s)",
        "client.prefill(work, 1e6)",
        f"{FAIL}b42_every_phase_that_hangs_ends_by_its_deadline_with_a_reason[prefill]",
    ),
    Mutation(
        "B-43",
        "the probe of a prefill worker does not reach its engine",
        "gateway/cluster/probe.py",
        "            if worker.role.prefills:\n",
        "            if False:\n",
        f"{FAIL}b43_with_the_prefill_breaker_open_decode_is_left_alone_and_the_probe_goes_to_prefill",
    ),
    Mutation(
        "B-44",
        "a fault of the request counts against the worker",
        "gateway/cluster/health.py",
        "        if kind in NEUTRAL_FAULTS:\n",
        "        if False:\n",
        f"{FAIL}b44_what_the_request_did_wrong_is_never_the_workers_fault",
    ),
    Mutation(
        "B-45",
        "a health tick resets the load",
        "gateway/cluster/leases.py",
        "        self._fresh.clear()\n        self._freed_blocks.clear()\n",
        "        self._fresh.clear()\n        self._live[LeaseKind.RESERVATION].clear()\n",
        f"{FAIL}b45_load_is_the_truth_at_every_moment",
    ),
    Mutation(
        "B-46",
        "a worker that fails everything is never ejected",
        "gateway/cluster/health.py",
        "(fatal or self.faults[leg] >= self.limit)",
        "fatal",
        f"{FAIL}b46_a_worker_that_takes_work_and_fails_it_is_out_after_three",
    ),
)
