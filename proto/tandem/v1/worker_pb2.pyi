from proto.tandem.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Topology(_message.Message):
    __slots__ = ("host", "nvlink_domain", "rack", "numa", "device", "transports", "node")
    HOST_FIELD_NUMBER: _ClassVar[int]
    NVLINK_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    NUMA_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    host: str
    nvlink_domain: str
    rack: str
    numa: str
    device: str
    transports: _containers.RepeatedScalarFieldContainer[str]
    node: str
    def __init__(self, host: _Optional[str] = ..., nvlink_domain: _Optional[str] = ..., rack: _Optional[str] = ..., numa: _Optional[str] = ..., device: _Optional[str] = ..., transports: _Optional[_Iterable[str]] = ..., node: _Optional[str] = ...) -> None: ...

class WorkerInfo(_message.Message):
    __slots__ = ("worker_id", "epoch", "role", "model", "model_path", "model_hash", "revision", "dtype", "kv_layout", "block_size_tokens", "blocks_total", "kv_bytes_per_token", "tp", "pp", "engine", "engine_version", "max_model_len", "max_num_seqs", "eos_token_ids", "vocab_size", "topology", "kv_lease_s", "peer_params", "hands_over")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_PATH_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    KV_LAYOUT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    KV_BYTES_PER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TP_FIELD_NUMBER: _ClassVar[int]
    PP_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    KV_LEASE_S_FIELD_NUMBER: _ClassVar[int]
    PEER_PARAMS_FIELD_NUMBER: _ClassVar[int]
    HANDS_OVER_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    epoch: str
    role: _common_pb2.Role
    model: str
    model_path: str
    model_hash: str
    revision: str
    dtype: str
    kv_layout: str
    block_size_tokens: int
    blocks_total: int
    kv_bytes_per_token: int
    tp: int
    pp: int
    engine: str
    engine_version: str
    max_model_len: int
    max_num_seqs: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    vocab_size: int
    topology: Topology
    kv_lease_s: float
    peer_params: bytes
    hands_over: bool
    def __init__(self, worker_id: _Optional[str] = ..., epoch: _Optional[str] = ..., role: _Optional[_Union[_common_pb2.Role, str]] = ..., model: _Optional[str] = ..., model_path: _Optional[str] = ..., model_hash: _Optional[str] = ..., revision: _Optional[str] = ..., dtype: _Optional[str] = ..., kv_layout: _Optional[str] = ..., block_size_tokens: _Optional[int] = ..., blocks_total: _Optional[int] = ..., kv_bytes_per_token: _Optional[int] = ..., tp: _Optional[int] = ..., pp: _Optional[int] = ..., engine: _Optional[str] = ..., engine_version: _Optional[str] = ..., max_model_len: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., vocab_size: _Optional[int] = ..., topology: _Optional[_Union[Topology, _Mapping]] = ..., kv_lease_s: _Optional[float] = ..., peer_params: _Optional[bytes] = ..., hands_over: _Optional[bool] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("interval_s",)
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    interval_s: float
    def __init__(self, interval_s: _Optional[float] = ...) -> None: ...

class PeerTransfers(_message.Message):
    __slots__ = ("worker_id", "transfers", "bytes", "seconds", "failures")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    transfers: int
    bytes: int
    seconds: float
    failures: int
    def __init__(self, worker_id: _Optional[str] = ..., transfers: _Optional[int] = ..., bytes: _Optional[int] = ..., seconds: _Optional[float] = ..., failures: _Optional[int] = ...) -> None: ...

class WorkerState(_message.Message):
    __slots__ = ("epoch", "sequence", "role", "healthy", "draining", "detail", "blocks_total", "blocks_used", "blocks_reserved", "reservations", "running", "waiting", "tickets_held", "attached_gateways", "preemptions", "recomputed_tokens", "prompt_tokens", "generated_tokens", "cached_prompt_tokens", "steps", "step_time_s", "tickets_issued", "tickets_expired", "tickets_released", "failed_notifications", "transfers", "sequences", "blocks_promised", "pool_blocks", "pool_blocks_used", "overrun_risk", "totals", "error_budget")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_USED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_RESERVED_FIELD_NUMBER: _ClassVar[int]
    RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    TICKETS_HELD_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_GATEWAYS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_S_FIELD_NUMBER: _ClassVar[int]
    TICKETS_ISSUED_FIELD_NUMBER: _ClassVar[int]
    TICKETS_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    TICKETS_RELEASED_FIELD_NUMBER: _ClassVar[int]
    FAILED_NOTIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_PROMISED_FIELD_NUMBER: _ClassVar[int]
    POOL_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    POOL_BLOCKS_USED_FIELD_NUMBER: _ClassVar[int]
    OVERRUN_RISK_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    ERROR_BUDGET_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    sequence: int
    role: _common_pb2.Role
    healthy: bool
    draining: bool
    detail: str
    blocks_total: int
    blocks_used: int
    blocks_reserved: int
    reservations: int
    running: int
    waiting: int
    tickets_held: int
    attached_gateways: int
    preemptions: int
    recomputed_tokens: int
    prompt_tokens: int
    generated_tokens: int
    cached_prompt_tokens: int
    steps: int
    step_time_s: float
    tickets_issued: int
    tickets_expired: int
    tickets_released: int
    failed_notifications: int
    transfers: _containers.RepeatedCompositeFieldContainer[PeerTransfers]
    sequences: int
    blocks_promised: float
    pool_blocks: int
    pool_blocks_used: int
    overrun_risk: float
    totals: StepTotals
    error_budget: float
    def __init__(self, epoch: _Optional[str] = ..., sequence: _Optional[int] = ..., role: _Optional[_Union[_common_pb2.Role, str]] = ..., healthy: _Optional[bool] = ..., draining: _Optional[bool] = ..., detail: _Optional[str] = ..., blocks_total: _Optional[int] = ..., blocks_used: _Optional[int] = ..., blocks_reserved: _Optional[int] = ..., reservations: _Optional[int] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., tickets_held: _Optional[int] = ..., attached_gateways: _Optional[int] = ..., preemptions: _Optional[int] = ..., recomputed_tokens: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., steps: _Optional[int] = ..., step_time_s: _Optional[float] = ..., tickets_issued: _Optional[int] = ..., tickets_expired: _Optional[int] = ..., tickets_released: _Optional[int] = ..., failed_notifications: _Optional[int] = ..., transfers: _Optional[_Iterable[_Union[PeerTransfers, _Mapping]]] = ..., sequences: _Optional[int] = ..., blocks_promised: _Optional[float] = ..., pool_blocks: _Optional[int] = ..., pool_blocks_used: _Optional[int] = ..., overrun_risk: _Optional[float] = ..., totals: _Optional[_Union[StepTotals, _Mapping]] = ..., error_budget: _Optional[float] = ...) -> None: ...

class StepTotals(_message.Message):
    __slots__ = ("decode_steps", "decode_s", "answers", "context_tokens", "chunk_steps", "chunk_s", "chunk_tokens", "chunk_answers", "chunk_context_tokens")
    DECODE_STEPS_FIELD_NUMBER: _ClassVar[int]
    DECODE_S_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_STEPS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_S_FIELD_NUMBER: _ClassVar[int]
    CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    decode_steps: int
    decode_s: float
    answers: int
    context_tokens: int
    chunk_steps: int
    chunk_s: float
    chunk_tokens: int
    chunk_answers: int
    chunk_context_tokens: int
    def __init__(self, decode_steps: _Optional[int] = ..., decode_s: _Optional[float] = ..., answers: _Optional[int] = ..., context_tokens: _Optional[int] = ..., chunk_steps: _Optional[int] = ..., chunk_s: _Optional[float] = ..., chunk_tokens: _Optional[int] = ..., chunk_answers: _Optional[int] = ..., chunk_context_tokens: _Optional[int] = ...) -> None: ...

class WarmRequest(_message.Message):
    __slots__ = ("peer",)
    PEER_FIELD_NUMBER: _ClassVar[int]
    peer: WorkerInfo
    def __init__(self, peer: _Optional[_Union[WorkerInfo, _Mapping]] = ...) -> None: ...

class WarmReply(_message.Message):
    __slots__ = ("ok", "transport", "handshake_s", "bytes_per_s", "fault", "detail")
    OK_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    HANDSHAKE_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    transport: str
    handshake_s: float
    bytes_per_s: float
    fault: _common_pb2.Fault
    detail: str
    def __init__(self, ok: _Optional[bool] = ..., transport: _Optional[str] = ..., handshake_s: _Optional[float] = ..., bytes_per_s: _Optional[float] = ..., fault: _Optional[_Union[_common_pb2.Fault, _Mapping]] = ..., detail: _Optional[str] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("resume",)
    RESUME_FIELD_NUMBER: _ClassVar[int]
    resume: bool
    def __init__(self, resume: _Optional[bool] = ...) -> None: ...

class DrainReply(_message.Message):
    __slots__ = ("outstanding",)
    OUTSTANDING_FIELD_NUMBER: _ClassVar[int]
    outstanding: int
    def __init__(self, outstanding: _Optional[int] = ...) -> None: ...

class SetRoleRequest(_message.Message):
    __slots__ = ("role",)
    ROLE_FIELD_NUMBER: _ClassVar[int]
    role: _common_pb2.Role
    def __init__(self, role: _Optional[_Union[_common_pb2.Role, str]] = ...) -> None: ...

class SetRoleReply(_message.Message):
    __slots__ = ("previous",)
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    previous: _common_pb2.Role
    def __init__(self, previous: _Optional[_Union[_common_pb2.Role, str]] = ...) -> None: ...

class LimitStepRequest(_message.Message):
    __slots__ = ("gateway_id", "step_tokens", "chunk_tokens", "lease_s")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    step_tokens: int
    chunk_tokens: int
    lease_s: float
    def __init__(self, gateway_id: _Optional[str] = ..., step_tokens: _Optional[int] = ..., chunk_tokens: _Optional[int] = ..., lease_s: _Optional[float] = ...) -> None: ...

class LimitStepReply(_message.Message):
    __slots__ = ("most_step_tokens", "totals")
    MOST_STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    most_step_tokens: int
    totals: StepTotals
    def __init__(self, most_step_tokens: _Optional[int] = ..., totals: _Optional[_Union[StepTotals, _Mapping]] = ...) -> None: ...
