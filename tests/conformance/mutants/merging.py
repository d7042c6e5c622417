"""Merging the two legs."""

from tests.conformance.mutations import Mutation

MERGE = "tests/conformance/test_merging.py::test_"
LEGS = "gateway/request/legs.py"

MUTATIONS = (
    Mutation(
        "B-11",
        "the decode worker's cached count replaces the prefill worker's",
        "gateway/request/merge.py",
        "        if not self.known:\n",
        "        if True:\n",
        f"{MERGE}b11_cached_tokens_are_the_prefill_workers_whatever_the_decode_worker_says",
    ),
    Mutation(
        "B-12",
        "completion tokens are counted from the text",
        "gateway/http/choice.py",
        "        self.count += len(tokens)\n        if piece.finish is None:\n"
        '            return Shown(self._detokenizer.push(tokens) if tokens else "", tokens=tokens, logprobs=piece.logprobs)\n',
        '        if piece.finish is None:\n            text = self._detokenizer.push(tokens) if tokens else ""\n'
        "            self.count += len(text)\n            return Shown(text, tokens=tokens, logprobs=piece.logprobs)\n",
        f"{MERGE}b12_counts_and_finish_reasons_are_the_engines_not_the_texts",
    ),
    Mutation(
        "B-13",
        "the role delta comes with every piece",
        "gateway/http/answering.py",
        "            choice.opened = True\n",
        "",
        f"{MERGE}b13_one_identity_and_one_role_for_the_whole_stream",
    ),
    Mutation(
        "B-15",
        "the prefill leg is not asked for the first token's logprob",
        LEGS,
        "logprobs=wanted.logprobs if mode is Mode.CARRY else None",
        "logprobs=None",
        f"{MERGE}b15_every_token_has_its_logprob_the_first_one_too",
    ),
    Mutation(
        "B-16",
        "the answer is collected and then sent",
        "gateway/request/answers.py",
        "        while not self._pieces:\n",
        "        while not self._pieces or not (self._ended or self.complete):\n",
        f"{MERGE}b16_tokens_are_passed_on_as_they_are_made",
    ),
    Mutation(
        "B-17",
        "the text's state begins anew with the second leg",
        "gateway/http/choice.py",
        "        if self._matcher is not None or self._reader is not None:\n",
        "        if self.count == 1 and self._rules.stops:\n"
        "            self._matcher = StopMatcher(self._rules.stops, include=self._rules.include_stop)\n"
        "        if self._matcher is not None or self._reader is not None:\n",
        f"{MERGE}b17_what_is_read_out_of_the_text_spans_both_legs",
    ),
    Mutation(
        "B-18",
        "a failure before any output is sent with status 200",
        "gateway/http/writer.py",
        "await self._whole(error.status, ",
        "await self._whole(200, ",
        f"{MERGE}b18_a_failure_before_any_output_is_an_error_and_nothing_else",
    ),
    Mutation(
        "B-19",
        "the prefill leg's token of structured output is shown, and the decode leg's grammar begins after it",
        LEGS,
        " or sampling.structured is not None",
        "",
        "tests/gateway/request/test_paths.py::test_b19_structured_output_sees_its_first_token_once",
    ),
)
