"""Failures: more work than there is room for."""

from tests.conformance.mutations import Mutation

OVER = "tests/conformance/test_overload.py::test_"

MUTATIONS = (
    Mutation(
        "B-53",
        "an overloaded worker is a broken one",
        "gateway/request/failures.py",
        "_BUSY = frozenset({FaultKind.OVERLOADED, ",
        "_BUSY = frozenset({",
        f"{OVER}b53_pressure_on_either_pool_is_503_with_a_reason_and_a_time",
    ),
    Mutation(
        "B-54",
        "a worker that has fallen silent goes on getting work",
        "gateway/cluster/health.py",
        "        return self.heard_s is None or self._clock() - self.heard_s > self._config.stale_after_s\n",
        "        return False\n",
        f"{OVER}b54_the_larger_figure_counts_and_silence_closes",
    ),
    Mutation(
        "B-54",
        "a worker grants by what is reserved, whatever its engine uses",
        "decode_pool/account.py",
        "return max(load.blocks_used, self.charges.blocks + self._foreign_blocks(load))",
        "return self.charges.blocks + self._foreign_blocks(load)",
        "tests/decode_pool/test_ledger.py::test_b54_admission_takes_the_larger_of_used_and_reserved",
    ),
    Mutation(
        "B-55",
        "what can never fit waits at the head of the queue",
        "gateway/policy/fleet.py",
        "return need.longest_tokens <= self.window and need.blocks(self.block_size_tokens) <= self.blocks_total",
        "return need.longest_tokens <= self.window",
        f"{OVER}b55_what_never_fits_is_refused_at_once_and_holds_up_nobody",
    ),
    Mutation(
        "B-57",
        "growth beyond a reservation is not charged",
        "decode_pool/hold.py",
        "        if self.tokens > self._covered:\n",
        "        if False:\n",
        "tests/decode_pool/test_service.py::test_b57_growth_beyond_the_reservation_is_charged",
    ),
    Mutation(
        "B-57",
        "declared growth is not reserved",
        "gateway/policy/estimate/growth.py",
        "return answers * min(each, room)",
        "return answers",
        f"{OVER}b57_growth_that_was_declared_is_reserved_so_that_nobody_is_preempted",
    ),
    Mutation(
        "B-58",
        "prompts are tokenized on the event loop",
        "gateway/text/pool.py",
        "        future = asyncio.get_running_loop().run_in_executor(self._executor, work)\n",
        "        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()\n"
        "        future.set_result(work())\n",
        f"{OVER}b58_a_client_with_a_giant_prompt_makes_nobody_wait",
    ),
)
