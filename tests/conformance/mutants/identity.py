"""Identity and safety, numerics and pairing, gRPC, length estimates, the load generator."""

from tests.conformance.mutations import Mutation

IDENTITY = "tests/conformance/test_identity.py::test_"
LEGS = "gateway/request/legs.py"

MUTATIONS = (
    Mutation(
        "B-60",
        "fields that nobody knows are let through",
        "gateway/http/fields.py",
        'extra="forbid", strict=True, frozen=True',
        'extra="ignore", strict=True, frozen=True',
        f"{IDENTITY}b60_no_body_tells_the_fleet_whom_to_talk_to",
    ),
    Mutation(
        "B-62",
        "workers of another model are let in",
        "gateway/cluster/roster.py",
        "            if served is None or info.model_hash == served.model_hash:\n",
        "            if True:\n",
        f"{IDENTITY}b62_workers_of_another_model_get_nothing_under_load",
    ),
    Mutation(
        "B-63",
        "the decode leg does not know that a token was carried",
        LEGS,
        "return self.intent.prompts[self.prompt] + self.carried",
        "return self.intent.prompts[self.prompt]",
        f"{IDENTITY}b63_a_prompt_asked_again_is_answered_as_before_and_as_colocated",
    ),
    Mutation(
        "B-64",
        "workers of different block sizes are paired",
        "transfer/compatibility.py",
        '    ("block size", lambda info: info.block_size_tokens),\n',
        "",
        f"{IDENTITY}b64_a_pair_that_does_not_fit_is_refused_when_it_meets",
    ),
    Mutation(
        "B-65",
        "the server keeps gRPC's own idea of how often one may ping",
        "proto/channel.py",
        '        ("grpc.http2.min_ping_interval_without_data_ms", max(1, int(keepalive.time_s * 500))),\n'
        '        ("grpc.http2.max_ping_strikes", 0),\n',
        "",
        "tests/proto/test_channel.py",
    ),
    Mutation(
        "B-67",
        "the role delta is taken for the first token",
        "loadgen/client/timeline.py",
        "        text = _content(choice)\n",
        '        text = _content(choice) or ("role" if "role" in choice.get("delta", {}) else "")\n',
        "tests/loadgen/test_timeline.py::test_b67_first_token_is_the_first_content_not_the_role",
    ),
    Mutation(
        "B-68",
        "a stream without a token is a completed request",
        "loadgen/client/outcome.py",
        "    if timeline.first_s is None:\n",
        "    if False:\n",
        "tests/loadgen/test_timeline.py::test_b68_a_stream_without_a_token_failed",
    ),
    Mutation(
        "B-70",
        "constant gaps are exponential ones",
        "loadgen/arrivals/process.py",
        "        draw = np.ones\n",
        "        draw = lambda n: rng.exponential(1.0, n)  # noqa: E731\n",
        "tests/loadgen/test_arrivals.py::test_b70_constant_is_constant",
    ),
    Mutation(
        "B-71",
        "an answer without a limit is charged nothing",
        "gateway/policy/estimate/growth.py",
        "each = default_output_tokens if declared_max_tokens is None else declared_max_tokens",
        "each = 0 if declared_max_tokens is None else declared_max_tokens",
        f"{IDENTITY}b71_an_answer_without_a_limit_is_charged_the_default_after_the_whole_prompt",
    ),
)
