"""Hypothesis strategies for every noun on the wire."""

from hypothesis import strategies as st

from proto.fault import Fault, FaultKind
from proto.join import JoinReply, JoinRequest
from proto.precedence import Precedence
from proto.reservation import Refusal, RefusalReason, Reservation, ReserveRequest
from proto.sampling import Sampling, StructuredKind, StructuredOutput
from proto.ticket import Ticket
from proto.work import (
    Abort,
    FinishReason,
    HandOver,
    Hello,
    PrefillDone,
    SequenceDelta,
    Start,
    TokenLogprobs,
    Work,
    WriterLost,
)
from proto.worker import PeerTransfers, Role, StepTotals, Topology, WarmResult, WorkerInfo, WorkerState

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
NUMBER = st.floats(allow_nan=False)
TOKENS = st.lists(U32, max_size=6).map(tuple)

FAULTS = st.builds(Fault, st.sampled_from(FaultKind), TEXT, st.dictionaries(TEXT, NUMBER, max_size=3))
STRUCTURED = st.builds(StructuredOutput, st.sampled_from(StructuredKind), TEXT)
SAMPLINGS = st.builds(
    Sampling,
    max_tokens=U32,
    min_tokens=U32,
    temperature=NUMBER,
    top_p=NUMBER,
    top_k=st.integers(-(2**31), 2**31 - 1),
    min_p=NUMBER,
    presence_penalty=NUMBER,
    frequency_penalty=NUMBER,
    repetition_penalty=NUMBER,
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    stop_token_ids=TOKENS,
    ignore_eos=st.booleans(),
    logit_bias=st.dictionaries(U32, NUMBER, max_size=3).map(lambda bias: tuple(sorted(bias.items()))),
    logprobs=st.none() | U32,
    prompt_logprobs=st.none() | U32,
    structured=st.none() | STRUCTURED,
)
TICKETS = st.builds(
    Ticket,
    ticket_id=TEXT,
    worker_id=TEXT,
    epoch=TEXT,
    engine_params=st.binary(max_size=12),
    computed_tokens=U32,
    blocks=U32,
    block_size_tokens=U32,
    kv_bytes=U64,
    lease_s=NUMBER,
    age_s=NUMBER,
)
LOGPROBS = st.builds(TokenLogprobs, TOKENS, st.lists(NUMBER, max_size=3).map(tuple), TOKENS)
MANY_LOGPROBS = st.lists(LOGPROBS, max_size=2).map(tuple)
PROMPT_LOGPROBS = st.lists(st.none() | LOGPROBS, max_size=3).map(tuple)
FINISHES = st.none() | st.sampled_from(FinishReason)
WORKS = st.builds(
    Work, TEXT, TOKENS, SAMPLINGS, st.integers(-(2**31), 2**31 - 1), TEXT, precedence=st.sampled_from(Precedence)
)
DELTAS = st.builds(
    SequenceDelta,
    tokens=TOKENS,
    logprobs=MANY_LOGPROBS,
    finish=FINISHES,
    fault=st.none() | FAULTS,
    cached_tokens=U32,
    prompt_logprobs=PROMPT_LOGPROBS,
    queue_s=NUMBER,
    transfer_s=NUMBER,
    compute_s=NUMBER,
    ticket=st.none() | TICKETS,
    stays=st.booleans(),
)
PREFILL_DONES = st.builds(
    PrefillDone,
    tokens=TOKENS,
    ticket=st.none() | TICKETS,
    finish=FINISHES,
    logprobs=MANY_LOGPROBS,
    cached_tokens=U32,
    prompt_logprobs=PROMPT_LOGPROBS,
    queue_s=NUMBER,
    compute_s=NUMBER,
)
COMMANDS = (
    st.builds(Hello, TEXT, TEXT)
    | st.builds(Start, U64, TEXT, WORKS, st.none() | TICKETS)
    | st.builds(Abort, U64)
    | st.builds(WriterLost, U64, TEXT)
    | st.builds(HandOver, U64)
)
FRAMES = st.lists(st.tuples(U64, DELTAS), max_size=4).map(tuple)
RESERVE_REQUESTS = st.builds(
    ReserveRequest, TEXT, TEXT, U32, U32, NUMBER, U32, TOKENS, U32, NUMBER, U64, U32, st.booleans(), st.booleans()
)
RESERVE_REPLIES = st.builds(Reservation, TEXT, U32, NUMBER) | st.builds(
    Refusal, st.sampled_from(RefusalReason), U32, U32, U32, U32, U32, U32, NUMBER, NUMBER, NUMBER, U32
)
TOPOLOGIES = st.builds(Topology, TEXT, TEXT, TEXT, TEXT, TEXT, st.lists(TEXT, max_size=3).map(tuple))
INFOS = st.builds(
    WorkerInfo,
    worker_id=TEXT,
    epoch=TEXT,
    role=st.sampled_from(Role),
    model=TEXT,
    model_path=TEXT,
    model_hash=TEXT,
    revision=TEXT,
    dtype=TEXT,
    kv_layout=TEXT,
    block_size_tokens=U32,
    blocks_total=U32,
    kv_bytes_per_token=U64,
    tp=U32,
    pp=U32,
    engine=TEXT,
    engine_version=TEXT,
    max_model_len=U32,
    max_num_seqs=U32,
    eos_token_ids=TOKENS,
    vocab_size=U32,
    topology=TOPOLOGIES,
    kv_lease_s=NUMBER,
    peer_params=st.binary(max_size=12),
    hands_over=st.booleans(),
)
TRANSFERS = st.builds(PeerTransfers, TEXT, U64, U64, NUMBER, U64)
TOTALS = st.builds(StepTotals, U64, NUMBER, U64, U64, U64, NUMBER, U64, U64, U64)
STATES = st.builds(
    WorkerState,
    epoch=TEXT,
    sequence=U64,
    role=st.sampled_from(Role),
    healthy=st.booleans(),
    draining=st.booleans(),
    detail=TEXT,
    blocks_total=U32,
    blocks_used=U32,
    blocks_reserved=U32,
    reservations=U32,
    running=U32,
    waiting=U32,
    tickets_held=U32,
    attached_gateways=U32,
    sequences=U32,
    preemptions=U64,
    recomputed_tokens=U64,
    prompt_tokens=U64,
    generated_tokens=U64,
    cached_prompt_tokens=U64,
    steps=U64,
    step_time_s=NUMBER,
    tickets_issued=U64,
    tickets_expired=U64,
    tickets_released=U64,
    failed_notifications=U64,
    transfers=st.lists(TRANSFERS, max_size=3).map(tuple),
    blocks_promised=NUMBER,
    overrun_risk=NUMBER,
    error_budget=NUMBER,
    pool_blocks=U32,
    pool_blocks_used=U32,
    totals=TOTALS,
)
WARM_RESULTS = st.builds(WarmResult, st.booleans(), TEXT, NUMBER, NUMBER, TEXT)
JOIN_REQUESTS = st.builds(JoinRequest, TEXT, TEXT, TEXT)
JOIN_REPLIES = st.builds(JoinReply, st.booleans(), TEXT, NUMBER)
