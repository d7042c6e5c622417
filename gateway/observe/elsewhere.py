"""What other gateways call the same figures, for whoever brings a dashboard along. Names as their documents had them in 2026."""

#: What it is: the names elsewhere, and the metric here with the labels that choose it.
ELSEWHERE: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    ("requests", ("dynamo_frontend_requests_total", "llm_d_epp_request_total"), "tandem_requests_total", ""),
    (
        "errors and refusals by reason",
        ("llm_d_epp_request_error_total", "dynamo_frontend_model_rejection_total"),
        "tandem_requests_total",
        'outcome="failed", outcome="rejected"; `reason`',
    ),
    (
        "cancelled",
        ("dynamo_frontend_model_cancellation_total",),
        "tandem_requests_total",
        'outcome="cancelled"',
    ),
    (
        "under way",
        ("dynamo_frontend_inflight_requests", "llm_d_epp_inflight_requests"),
        "tandem_requests_in_flight",
        "`phase`",
    ),
    (
        "waiting",
        ("dynamo_frontend_queued_requests", "llm_d_epp_flow_control_queue_size"),
        "tandem_queue_length",
        "",
    ),
    (
        "time in the queue",
        ("llm_d_epp_flow_control_request_queue_duration_seconds",),
        "tandem_phase_seconds",
        'phase="queued"',
    ),
    ("duration", ("dynamo_frontend_request_duration_seconds",), "tandem_request_seconds", ""),
    (
        "TTFT",
        ("dynamo_frontend_time_to_first_token_seconds", "llm_d_epp_request_ttft_seconds"),
        "tandem_time_to_first_token_seconds",
        "",
    ),
    (
        "time between tokens",
        ("dynamo_frontend_inter_token_latency_seconds", "llm_d_epp_request_streaming_tpot_seconds"),
        "tandem_time_per_output_token_seconds",
        "a mean for each request, not each gap",
    ),
    (
        "lengths",
        ("dynamo_frontend_input_sequence_tokens", "dynamo_frontend_output_sequence_tokens"),
        "tandem_request_prompt_tokens",
        "and `tandem_request_completion_tokens`",
    ),
    (
        "prefill apart or not",
        ("llm_d_epp_disagg_decision_total",),
        "tandem_requests_total",
        "`path`: remote, local, colocated",
    ),
    (
        "answers that went on elsewhere",
        ("dynamo_frontend_model_migration_total",),
        "tandem_moves_total",
        "`outcome`",
    ),
    (
        "KV in use",
        ("dynamo_frontend_worker_active_decode_blocks", "dynamo_frontend_model_total_kv_blocks"),
        "tandem_worker_kv_blocks",
        'kind="used", kind="total"',
    ),
    (
        "how full",
        ("llm_d_epp_flow_control_pool_saturation",),
        "tandem_worker_overrun_risk",
        "a chance, not a share",
    ),
)
