"""Every metric of the gateway, in one table: what is not here is not exported, and docs/metrics.md is made of it.

Label values are bounded: phases, reasons, outcomes, paths and transports are closed lists, routes are
patterns, and worker ids are those of the connected fleet.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Spec:
    """`name` is the exported one, so counters end in _total."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 1200.0)
SHORT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
TOKENS = tuple(float(2**power) for power in range(0, 20, 2))
C, G, H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

#: What requests did.
REQUEST_METRICS = (
    Spec(
        "tandem_requests_total",
        C,
        "Requests that ended, by outcome (done, rejected, failed, cancelled), reason and path.",
        ("outcome", "reason", "path"),
    ),
    Spec(
        "tandem_http_responses_total",
        C,
        "Status lines sent, by route. A stream that breaks later still counts as 200 here.",
        ("route", "status"),
    ),
    Spec("tandem_stream_broken_total", C, "Streams that ended with an error event and without [DONE]."),
    Spec("tandem_request_seconds", H, "From arrival to the end, of requests that were done.", ("path",), SECONDS),
    Spec("tandem_time_to_first_token_seconds", H, "From arrival to the first token.", ("path",), SECONDS),
    Spec(
        "tandem_time_per_output_token_seconds",
        H,
        "Mean gap between the tokens of one finished request, its first token left out, all choices together.",
        ("path",),
        SHORT_SECONDS,
    ),
    Spec("tandem_phase_seconds", H, "Time in each phase of a request that it left.", ("phase",), SECONDS),
    Spec("tandem_tokenize_seconds", H, "Rendering and tokenizing one request, waiting included.", (), SHORT_SECONDS),
    Spec("tandem_prompt_tokens_total", C, "Prompt tokens of requests that passed validation."),
    Spec("tandem_cached_prompt_tokens_total", C, "Prompt tokens found in a prefix cache, by the leg that computed."),
    Spec("tandem_completion_tokens_total", C, "Answer tokens shown to clients."),
    Spec("tandem_request_prompt_tokens", H, "Prompt tokens of one request that was done.", (), TOKENS),
    Spec("tandem_request_completion_tokens", H, "Answer tokens of one request that was done.", (), TOKENS),
    Spec("tandem_answers_capped_total", C, "Answers that the policy ended for want of KV (stop_reason kv_budget)."),
    Spec("tandem_moves_total", C, "Running answers that were to go on at another worker.", ("reason", "outcome")),
    Spec("tandem_retries_total", C, "Legs tried once more, by phase and by what failed.", ("phase", "reason")),
    Spec("tandem_handoffs_total", C, "KV that arrived at a decode worker.", ("transport",)),
    Spec("tandem_handoff_bytes_total", C, "Bytes of that KV.", ("transport",)),
    Spec("tandem_handoff_seconds", H, "Pulling one prompt's KV.", ("transport",), SHORT_SECONDS),
    Spec("tandem_handoff_ticket_age_seconds", H, "Age of a ticket when its KV had arrived.", (), SHORT_SECONDS),
    Spec("tandem_handoff_missing_total", C, "Prefill legs that ended without hand-off parameters."),
    Spec("tandem_tickets_expired_total", C, "Tickets too old to dispatch; their prompts were prefilled again."),
    Spec("tandem_worker_transitions_total", C, "Changes of a worker's status, by the new one.", ("status",)),
    Spec("tandem_pair_transitions_total", C, "Changes of a pair's state, by the new one.", ("state",)),
)

#: What the cluster is, read when somebody asks.
CLUSTER_METRICS = (
    Spec("tandem_build_info", G, "Always 1.", ("version", "gateway")),
    Spec("tandem_ready", G, "1 when a usable pair or a colocated worker exists.", ("mode",)),
    Spec("tandem_requests_in_flight", G, "Requests under way.", ("phase",)),
    Spec("tandem_queue_length", G, "Requests waiting for KV."),
    Spec("tandem_leases_overdue", G, "Leases held past their deadline. Anything but 0 is a defect."),
    Spec("tandem_cleanups", G, "Releases under way after requests that ended."),
    Spec("tandem_worker_status", G, "1 for the status each worker has.", ("worker", "role", "status")),
    Spec("tandem_worker_state_age_seconds", G, "Since a worker last reported.", ("worker",)),
    Spec(
        "tandem_worker_kv_blocks", G, "KV blocks by the worker's own count: total, used, reserved.", ("worker", "kind")
    ),
    Spec("tandem_worker_sequences", G, "Sequences in the engine: running, waiting.", ("worker", "kind")),
    Spec("tandem_worker_reservations", G, "Reservations granted by the worker, of all gateways.", ("worker",)),
    Spec("tandem_worker_tickets_held", G, "Tickets whose KV the worker keeps pinned.", ("worker",)),
    Spec("tandem_worker_step_seconds", G, "Smoothed time of one engine step.", ("worker",)),
    Spec("tandem_worker_kv_promised_blocks", G, "In full, or by the forecast within its error budget.", ("worker",)),
    Spec("tandem_worker_overrun_risk", G, "Chance of needing more at the worst step to come.", ("worker",)),
    Spec(
        "tandem_worker_error_budget",
        G,
        "Of that chance, so much is accepted now: as declared or found out, less what overruns have cost.",
        ("worker",),
    ),
    Spec("tandem_worker_pool_blocks", G, "The emergency pool: total, used.", ("worker", "kind")),
    Spec("tandem_worker_preemptions_total", C, "Sequences preempted for want of KV.", ("worker",)),
    Spec("tandem_worker_recomputed_tokens_total", C, "Tokens computed again after preemption.", ("worker",)),
    Spec("tandem_worker_prompt_tokens_total", C, "Prompt tokens computed or found cached.", ("worker",)),
    Spec("tandem_worker_cached_prompt_tokens_total", C, "Of these, found cached.", ("worker",)),
    Spec("tandem_worker_generated_tokens_total", C, "Tokens generated.", ("worker",)),
    Spec("tandem_worker_tickets_total", C, "Tickets by what became of them.", ("worker", "event")),
    Spec("tandem_worker_failed_notifications_total", C, "Release notices lost between engines.", ("worker",)),
    Spec("tandem_worker_consecutive_faults", G, "Faults in a row, as this gateway counts them.", ("worker",)),
    Spec("tandem_leases", G, "What this gateway holds on a worker.", ("worker", "kind")),
    Spec("tandem_pair_state", G, "1 for the state each pair has.", ("prefill", "decode", "transport", "state")),
    Spec("tandem_pair_bandwidth_bytes_per_second", G, "Measured at warm-up; 0 if not.", ("prefill", "decode")),
    Spec("tandem_pair_transfers_total", C, "Pulls that ended well, by the reader's telemetry.", ("prefill", "decode")),
    Spec("tandem_pair_bytes_total", C, "Bytes pulled.", ("prefill", "decode")),
    Spec("tandem_pair_seconds_total", C, "Seconds spent pulling.", ("prefill", "decode")),
    Spec("tandem_pair_failures_total", C, "Pulls that failed.", ("prefill", "decode")),
)

#: What the policy has counted, read when somebody asks. Classes are those of its configuration.
POLICY_METRICS = (
    Spec("tandem_policy_info", G, "Always 1.", ("policy", "rule")),
    Spec("tandem_policy_admitted", G, "Requests that the limits let in and that have not ended."),
    Spec("tandem_policy_queue_length", G, "Prompts waiting for KV.", ("band", "class")),
    Spec("tandem_estimates_total", C, "Answers that ended with an estimate.", ("class",)),
    Spec("tandem_estimates_cut_total", C, "Of these, ended by the client or a failure.", ("class",)),
    Spec("tandem_estimates_under_total", C, "Answers longer than their 90 % quantile at admission.", ("class",)),
    Spec("tandem_estimates_under_tokens_total", C, "Tokens beyond it.", ("class",)),
    Spec("tandem_estimates_over_total", C, "Answers shorter than it.", ("class",)),
    Spec("tandem_estimates_over_tokens_total", C, "Tokens short of it.", ("class",)),
    Spec("tandem_estimated_tokens_total", C, "Mean estimates of the answers that were not cut.", ("class",)),
    Spec("tandem_realised_tokens_total", C, "What these answers came to.", ("class",)),
    Spec("tandem_estimate_drifts_total", C, "Alarms that lengths have changed.", ("class",)),
    Spec("tandem_length_answers_total", C, "Answers that ended, by their length.", ("model", "answer_tokens")),
    Spec(
        "tandem_length_under_total",
        C,
        "Of these, longer than the 90 % quantile of their estimate at admission.",
        ("model", "answer_tokens"),
    ),
    Spec("tandem_length_under_tokens_total", C, "Tokens beyond it.", ("model", "answer_tokens")),
    Spec("tandem_length_over_total", C, "Answers shorter than it, cut ones apart.", ("model", "answer_tokens")),
    Spec("tandem_length_over_tokens_total", C, "Tokens short of it.", ("model", "answer_tokens")),
    Spec("tandem_length_realised_tokens_total", C, "Tokens of all these answers.", ("model", "answer_tokens")),
    Spec(
        "tandem_early_rejections_total",
        C,
        "Early refusals by what was seen afterwards: right, wrong, or unjudged (docs/admission.md).",
        ("reason", "verdict"),
    ),
    Spec(
        "tandem_fluid_ways_total",
        C,
        "Prompts that got a place, by the way that the role policy chose: together, handed, handed_later.",
        ("way",),
    ),
    Spec("tandem_fluid_leaning_workers", G, "Workers of role both that lean to prefill now."),
    Spec("tandem_fluid_limited_workers", G, "Workers that keep a limit of this gateway's on their engine's steps now."),
    Spec("tandem_fairness_spent", G, "Share of a fairness budget that is used up; 1 is all.", ("class", "measure")),
)

#: By version of the policy: the last 8 that decided requests, so that their number stays bounded.
VERSION_METRICS = (
    Spec(
        "tandem_policy_requests_total",
        C,
        "Requests that ended, by the version that decided them.",
        ("policy", "outcome"),
    ),
    Spec("tandem_policy_refusals_total", C, "Of these, refused.", ("policy", "reason")),
    Spec("tandem_policy_estimated_tokens_total", C, "Expected of answers that completed.", ("policy",)),
    Spec("tandem_policy_realised_tokens_total", C, "What these answers came to.", ("policy",)),
)

#: What happened to spans; 0 where there are none.
TRACE_METRICS = (
    Spec("tandem_traces_lost_total", C, "Requests whose spans could not be sent to the collector; the log says why."),
)

_NAMES = frozenset({"worker", "prefill", "decode", "gateway"})

#: Of these, what names no part of the fleet.
NAMELESS_METRICS = tuple([spec for spec in CLUSTER_METRICS if not _NAMES.intersection(spec.labels)])

CATALOGUE = REQUEST_METRICS + CLUSTER_METRICS + POLICY_METRICS + VERSION_METRICS + TRACE_METRICS
