"""Everything an operator can set on a gateway. Unknown keys are errors."""

import re
from enum import StrEnum
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.parsers.reasoning import ReasoningMarks, ReasoningParser
from gateway.parsers.tool_parser import ToolParser
from gateway.policy_config import PolicyConfig, Strict
from proto.tls import TlsConfig

#: A reservation outlives the longest prefill by this, where nothing else is configured.
_TTL_SLACK_S = 25.0
#: RFC 9110: a name is a token, a value is visible ASCII with blanks inside.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")


class OnPrefillFailure(StrEnum):
    """What the one retry of a failed prefill does."""

    OTHER_THEN_LOCAL = "other_then_local"
    OTHER = "other"
    LOCAL = "local"
    FAIL = "fail"


class OnNoPrefill(StrEnum):
    """What a request does when no prefill worker is ready (B-40)."""

    FAIL = "fail"
    LOCAL = "local"


class Deadlines(Strict):
    """One limit a phase, in seconds; no request can hang (invariant 4). There is no limit on a stream that flows."""

    tokenize_s: float = Field(30.0, gt=0, description="Rendering the template and tokenizing.")
    queue_s: float = Field(60.0, gt=0, description="Waiting for a decode worker to reserve KV.")
    reserve_s: float = Field(5.0, gt=0, description="One Reserve call.")
    prefill_s: float = Field(120.0, gt=0, description="The prefill leg, queueing on the worker included.")
    first_token_s: float = Field(120.0, gt=0, description="From dispatch to decode until its first token.")
    idle_s: float = Field(60.0, gt=0, description="Between two tokens of a running answer.")
    total_s: float | None = Field(None, gt=0, description="The whole request; unset means no such limit.")
    release_s: float = Field(1.0, gt=0, description="One release call after a cancel.")
    body_s: float = Field(30.0, gt=0, description="Between two parts of a request's body.")
    body_total_s: float = Field(300.0, gt=0, description="A request's whole body, however steadily it comes.")
    write_s: float = Field(60.0, gt=0, description="A client that takes no bytes of its answer for longer is dropped.")


class FluidConfig(Strict):
    """What good answers keep, by which each request's way is chosen (docs/fluid-roles.md)."""

    ttft_ms: float = Field(gt=0, description="Time to the first token.")
    tpot_ms: float = Field(gt=0, description="Mean time of each later one.")
    chunk_tokens: int = Field(
        2048,
        ge=256,
        description=(
            "Prompt tokens that the engines compute in one step (`engine.max_num_batched_tokens`). The policy plans with "
            "it while one of them cannot be told how many (docs/fluid-roles.md)."
        ),
    )
    leaning: tuple[str, ...] = Field(
        (), description="These `both` workers lean to prefill, and no other. Empty: the policy says how many, and who."
    )


class RoutingConfig(Strict):
    local_prefill_below_tokens: int = Field(
        16,
        ge=0,
        description=(
            "Prompts with fewer uncached tokens than this prefill on the decode worker. 16 is one KV block on GPUs: "
            "below it there is no full block to move and a hand-off costs more than the work it saves. 0 always hands off."
        ),
    )
    handoff_after_tokens: int = Field(
        1,
        ge=1,
        description=(
            "Answer tokens that the prefill worker gives before it hands off; one more or less at a KV block boundary. "
            "Seeded, penalised and structured answers, and n above 1, are handed off after their prompt whatever this says."
        ),
    )
    fluid: FluidConfig | None = Field(
        None,
        description=(
            "Every worker may prefill and decode, and each request goes the way that suits the fleet now. Unset: workers "
            "are chosen by the KV they have left, and `both` workers compute what they decode."
        ),
    )
    on_prefill_failure: OnPrefillFailure = OnPrefillFailure.OTHER_THEN_LOCAL
    on_no_prefill: OnNoPrefill = Field(
        OnNoPrefill.FAIL,
        description="No prefill worker is ready: refuse, or let decode workers prefill. With `fluid` they always may.",
    )
    lease_margin_s: float = Field(2.0, ge=0, description="Tickets with less lease left than this are prefilled again.")

    @property
    def decode_may_prefill(self) -> bool:
        """Whether decode workers compute prompts that no other can: `fluid` says so as much as `on_no_prefill` (B-40)."""
        return self.fluid is not None or self.on_no_prefill is OnNoPrefill.LOCAL


class AdmissionConfig(Strict):
    default_output_tokens: int = Field(
        1024,
        ge=1,
        description=(
            "Growth counted for a request that declares no limit, bounded by the window (B-71): reserved in full under "
            "policy.rule declared, and what must fit an empty worker under any rule."
        ),
    )
    max_queued: int = Field(1024, ge=0, description="Requests waiting for KV; more are refused with 429.")
    max_choices: int = Field(16, ge=1, description="Largest n x prompts in one request.")
    reservation_ttl_s: float | None = Field(
        None,
        gt=0,
        description=(
            "An unused reservation ends by itself after this. It is renewed while its prompt is computed; unset, it "
            "also outlives one whole prefill without: deadlines.prefill_s + deadlines.reserve_s + 25 s."
        ),
    )


class HealthConfig(Strict):
    watch_interval_s: float = Field(0.5, gt=0, description="How often workers send their state.")
    stale_after_s: float = Field(3.0, gt=0, description="A worker silent for longer takes no new work.")
    failures_to_eject: int = Field(3, ge=1, description="Consecutive faults (never 4xx) before a worker is ejected.")
    probe_backoff_s: float = Field(
        1.0, gt=0, description="First delay before an ejected worker is tried again; doubles."
    )
    probe_backoff_max_s: float = Field(30.0, gt=0)
    probe_timeout_s: float = Field(10.0, gt=0, description="One token through each leg of a worker under suspicion.")
    warm_timeout_s: float = Field(
        60.0, gt=0, description="One hand-shake of a pair; a worker takes no work before its pairs have been tried."
    )
    pair_failures_to_quarantine: int = Field(2, ge=1, description="Failed pulls of one (prefill, decode) pair.")


class TracesConfig(Strict):
    """Spans of requests, for a collector that speaks OTLP over HTTP in JSON."""

    endpoint: str = Field(
        pattern=r"^https?://",
        description="Where the collector listens, e.g. http://127.0.0.1:4318; /v1/traces is added.",
    )
    share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Of the requests without a traceparent; the others say themselves if they are traced.",
    )
    service: str = Field("tandem", min_length=1, description="service.name of the spans.")
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="Sent along, e.g. an authorization.")

    @field_validator("endpoint")
    @classmethod
    def _can_be_reached(cls, endpoint: str) -> str:
        parts = urlsplit(endpoint)
        if not parts.hostname:
            raise ValueError("names no host")
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                "has a name or a password in it, which logs would show; send an authorization in `headers`"
            )
        _ = parts.port  # ValueError beyond 65535
        return endpoint

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        """The value is not repeated: it may be a key."""
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a header")
            if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
                raise ValueError(f"the value of {name} has characters that no header can have")
        return headers


class GatewayConfig(Strict):
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535, description="HTTP port; 0 picks a free one.")
    grpc_host: str = "127.0.0.1"
    grpc_port: int = Field(0, ge=0, le=65535, description="Where workers join; 0 picks a free port.")
    gateway_id: str = Field("", description="Unique name of this replica; generated when empty.")
    workers: tuple[str, ...] = Field(
        (), description="Static list of worker addresses (host:port); workers may also join."
    )
    model: str = Field("", description="Name clients use; the workers' model name when empty.")
    tokenizer: str = Field(
        "",
        description=(
            "Directory with tokenizer.json; the workers' model path when empty. 'byte-level' is the built-in one, "
            "which simulated workers without files get."
        ),
    )
    reasoning_parser: ReasoningParser | None = Field(
        None,
        description=(
            "Chat answers give their reasoning apart from their content. think: between the marks below, which the model "
            "writes or the chat template opens (Qwen3 and most others). deepseek_r1: the same, for models that may leave "
            "out the first mark: an answer begins with reasoning unless the template has closed it. Unset: all is content."
        ),
    )
    reasoning_start: str = Field("<think>", min_length=1, max_length=64, description="The mark before reasoning.")
    reasoning_end: str = Field("</think>", min_length=1, max_length=64, description="The mark after it.")
    tool_parser: ToolParser | None = Field(
        None,
        description=(
            "How the model writes tool calls of its own accord. hermes: JSON in <tool_call> marks (Qwen2.5, Qwen3, Hermes). "
            "llama3_json: bare JSON (Llama 3.1 and later). Unset: `tools` only with a tool_choice that leaves no choice."
        ),
    )
    api_keys: dict[str, SecretStr] = Field(
        default_factory=dict, description="Tenant name to API key; when set, every other key gets 401."
    )
    operators: tuple[str, ...] = Field(
        (), description="Tenants whose keys may see the cluster's status and drain workers, where api_keys is set."
    )
    share_prefix_cache: bool = Field(False, description="Let tenants hit each other's cached prefixes.")
    max_body_bytes: int = Field(16 * 1024 * 1024, gt=0)
    max_bodies_bytes: int = Field(
        256 * 1024 * 1024,
        gt=0,
        description="Bodies that are arriving or being prepared, all together; more are refused with 429.",
    )
    tokenizer_threads: int = Field(2, ge=1)
    heartbeat_s: float = Field(15.0, gt=0, description="SSE comment while a started stream is silent.")
    drain_s: float = Field(30.0, ge=0, description="How long SIGTERM waits for requests in flight.")
    deadlines: Deadlines = Deadlines()
    routing: RoutingConfig = RoutingConfig()
    admission: AdmissionConfig = AdmissionConfig()
    policy: PolicyConfig = PolicyConfig()
    policy_history: str = Field(
        "",
        description=(
            "File that keeps the policies that were in force, so that one that was applied outlives a restart. Empty: in "
            "memory only; `tandem up` puts it into its run folder."
        ),
    )
    lengths_file: str = Field(
        "",
        description=(
            "File that keeps what was learnt of answer lengths, so that estimates outlive a restart. One for each gateway. "
            "Empty: in memory only; `tandem up` puts it into its run folder."
        ),
    )
    lengths_save_s: float = Field(60.0, gt=0, description="How often it is written; at the end it always is.")
    traffic_requests: int = Field(
        8192,
        ge=0,
        description=(
            "So many requests are remembered by their lengths and arrivals, for plans (`tandem traffic`). 0: none."
        ),
    )
    health: HealthConfig = HealthConfig()
    tls: TlsConfig | None = None
    traces: TracesConfig | None = Field(None, description="Spans of requests; none without it.")

    @property
    def reasoning_marks(self) -> ReasoningMarks | None:
        parser = self.reasoning_parser
        return ReasoningMarks(parser, self.reasoning_start, self.reasoning_end) if parser else None

    @property
    def reservation_ttl_s(self) -> float:
        wanted = self.admission.reservation_ttl_s
        return self._longest_prefill_s + _TTL_SLACK_S if wanted is None else wanted

    @property
    def _longest_prefill_s(self) -> float:
        """From the grant of a reservation to the end of a prefill that is not tried again."""
        return self.deadlines.reserve_s + self.deadlines.prefill_s

    @model_validator(mode="after")
    def _a_reservation_outlives_a_prefill(self) -> Self:
        if self.reservation_ttl_s <= self._longest_prefill_s:
            raise ValueError(
                f"admission.reservation_ttl_s is {self.reservation_ttl_s:g} s, but a prompt may be computed for "
                f"{self._longest_prefill_s:g} s (deadlines.reserve_s + deadlines.prefill_s): its reservation could end "
                "before it is used. Raise reservation_ttl_s, leave it unset, or lower prefill_s"
            )
        return self

    @model_validator(mode="after")
    def _clients_and_workers_have_a_port_each(self) -> Self:
        same_place = self.host == self.grpc_host or {self.host, self.grpc_host} & {"", "0.0.0.0", "::"}
        if self.port and self.port == self.grpc_port and same_place:
            raise ValueError(f"port and grpc_port are both {self.port}: clients and workers need a port each")
        return self

    @model_validator(mode="after")
    def _marks_can_be_told_apart(self) -> Self:
        marks = self.reasoning_start, self.reasoning_end
        if marks[0] == marks[1] or any(mark != mark.strip() for mark in marks):
            raise ValueError(
                "reasoning_start and reasoning_end must differ, without white space at their ends: white space around "
                "a mark is the text's own"
            )
        return self

    @field_validator("api_keys")
    @classmethod
    def _no_key_is_empty(cls, keys: dict[str, SecretStr]) -> dict[str, SecretStr]:
        """Whoever sends no key at all would have it."""
        empty = [tenant for tenant, key in keys.items() if not key.get_secret_value().strip()]
        if empty:
            raise ValueError(f"the key of {', '.join(empty)} is empty")
        return keys
