"""Shaping the prefill leg."""

from tests.conformance.mutations import Mutation

LEG = "tests/conformance/test_prefill_leg.py::test_"
LEGS = "gateway/request/legs.py"
PROMPT = "gateway/request/prompt.py"

MUTATIONS = (
    Mutation(
        "B-01",
        "the prefill leg keeps the client's token limit",
        LEGS,
        "            max_tokens=1,\n",
        "            max_tokens=wanted.max_tokens,\n",
        f"{LEG}b01_the_prefill_leg_has_one_token_to_give_and_the_decode_leg_all_the_others",
    ),
    Mutation(
        "B-02",
        "the prefill leg keeps the client's min_tokens",
        LEGS,
        "min_tokens=min(1, wanted.min_tokens)",
        "min_tokens=wanted.min_tokens",
        f"{LEG}b02_min_tokens_reach_the_decode_leg_and_never_exceed_the_prefill_legs_limit",
    ),
    Mutation(
        "B-03",
        "a 4xx of the prefill leg is taken for a failure, and the prompt is computed elsewhere",
        "gateway/request/failures.py",
        "return self.fault is None or self.fault.kind not in _FINAL",
        "return True",
        f"{LEG}b03_a_4xx_of_the_prefill_leg_is_the_clients_answer",
    ),
    Mutation(
        "B-04",
        "the prefill leg may end by EOS or by a stop token",
        LEGS,
        "            stop_token_ids=(),\n            ignore_eos=True,\n",
        "",
        f"{LEG}b04_an_answer_that_ends_at_once_is_still_handed_off",
    ),
    Mutation(
        "B-05",
        "all prompts of a list are the first one",
        LEGS,
        "return self.intent.prompts[self.prompt] + self.carried",
        "return self.intent.prompts[0] + self.carried",
        f"{LEG}b05_every_prompt_of_a_list_has_a_hand_off_of_its_own",
    ),
    Mutation(
        "B-06",
        "every answer of a prompt pulls with the same ticket",
        "gateway/request/answering.py",
        "with_ticket = self._ticket if answer == 0 else None",
        "with_ticket = self._ticket",
        f"{LEG}b06_n_answers_are_one_prefill_one_hand_off_and_one_charge_for_the_prompt",
    ),
    Mutation(
        "B-07",
        "the decode leg is asked for prompt logprobs of a prompt that it never computed",
        LEGS,
        "prompt_logprobs=wanted.prompt_logprobs if computes_prompt else None",
        "prompt_logprobs=wanted.prompt_logprobs",
        f"{LEG}b07_prompt_logprobs_come_from_the_prefill_leg_and_from_it_alone",
    ),
    Mutation(
        "B-09",
        "a usable pair is there, and decode prefills all the same",
        "gateway/policy/routing.py",
        'return Path.REMOTE, "handoff"',
        'return Path.LOCAL, "handoff"',
        f"{LEG}b09_as_many_hand_offs_as_requests_and_the_mode_for_all_to_see",
    ),
    Mutation(
        "B-10",
        "hand-off parameters that are missing are counted and logged nowhere",
        PROMPT,
        "            self._job.observer.handoff_missing(self._job.record, failure.worker_id)\n",
        "            pass\n",
        f"{LEG}b10_a_recompute_is_never_silent",
    ),
)
