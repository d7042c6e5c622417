from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_PREFILL: _ClassVar[Role]
    ROLE_DECODE: _ClassVar[Role]
    ROLE_BOTH: _ClassVar[Role]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_ABORT: _ClassVar[FinishReason]
    FINISH_REASON_HANDED_OVER: _ClassVar[FinishReason]

class FaultKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAULT_KIND_UNSPECIFIED: _ClassVar[FaultKind]
    FAULT_KIND_INVALID_REQUEST: _ClassVar[FaultKind]
    FAULT_KIND_CONTEXT_LENGTH: _ClassVar[FaultKind]
    FAULT_KIND_KV_CAPACITY: _ClassVar[FaultKind]
    FAULT_KIND_OVERLOADED: _ClassVar[FaultKind]
    FAULT_KIND_DRAINING: _ClassVar[FaultKind]
    FAULT_KIND_WRONG_ROLE: _ClassVar[FaultKind]
    FAULT_KIND_RESERVATION_UNKNOWN: _ClassVar[FaultKind]
    FAULT_KIND_TICKET_EXPIRED: _ClassVar[FaultKind]
    FAULT_KIND_TICKET_STALE: _ClassVar[FaultKind]
    FAULT_KIND_TICKET_BOUNDARY: _ClassVar[FaultKind]
    FAULT_KIND_KV_LOAD_FAILED: _ClassVar[FaultKind]
    FAULT_KIND_HANDOFF_MISSING: _ClassVar[FaultKind]
    FAULT_KIND_ENGINE_DEAD: _ClassVar[FaultKind]
    FAULT_KIND_CANCELLED: _ClassVar[FaultKind]
    FAULT_KIND_INTERNAL: _ClassVar[FaultKind]
    FAULT_KIND_PAIR_INCOMPATIBLE: _ClassVar[FaultKind]

class Precedence(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRECEDENCE_UNSPECIFIED: _ClassVar[Precedence]
    PRECEDENCE_BEGUN: _ClassVar[Precedence]
    PRECEDENCE_LATE: _ClassVar[Precedence]
ROLE_UNSPECIFIED: Role
ROLE_PREFILL: Role
ROLE_DECODE: Role
ROLE_BOTH: Role
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_ABORT: FinishReason
FINISH_REASON_HANDED_OVER: FinishReason
FAULT_KIND_UNSPECIFIED: FaultKind
FAULT_KIND_INVALID_REQUEST: FaultKind
FAULT_KIND_CONTEXT_LENGTH: FaultKind
FAULT_KIND_KV_CAPACITY: FaultKind
FAULT_KIND_OVERLOADED: FaultKind
FAULT_KIND_DRAINING: FaultKind
FAULT_KIND_WRONG_ROLE: FaultKind
FAULT_KIND_RESERVATION_UNKNOWN: FaultKind
FAULT_KIND_TICKET_EXPIRED: FaultKind
FAULT_KIND_TICKET_STALE: FaultKind
FAULT_KIND_TICKET_BOUNDARY: FaultKind
FAULT_KIND_KV_LOAD_FAILED: FaultKind
FAULT_KIND_HANDOFF_MISSING: FaultKind
FAULT_KIND_ENGINE_DEAD: FaultKind
FAULT_KIND_CANCELLED: FaultKind
FAULT_KIND_INTERNAL: FaultKind
FAULT_KIND_PAIR_INCOMPATIBLE: FaultKind
PRECEDENCE_UNSPECIFIED: Precedence
PRECEDENCE_BEGUN: Precedence
PRECEDENCE_LATE: Precedence

class Fault(_message.Message):
    __slots__ = ("kind", "message", "numbers")
    class NumbersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    kind: FaultKind
    message: str
    numbers: _containers.ScalarMap[str, float]
    def __init__(self, kind: _Optional[_Union[FaultKind, str]] = ..., message: _Optional[str] = ..., numbers: _Optional[_Mapping[str, float]] = ...) -> None: ...

class StructuredOutput(_message.Message):
    __slots__ = ("kind", "json_schema")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[StructuredOutput.Kind]
        KIND_JSON_OBJECT: _ClassVar[StructuredOutput.Kind]
        KIND_JSON_SCHEMA: _ClassVar[StructuredOutput.Kind]
    KIND_UNSPECIFIED: StructuredOutput.Kind
    KIND_JSON_OBJECT: StructuredOutput.Kind
    KIND_JSON_SCHEMA: StructuredOutput.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    kind: StructuredOutput.Kind
    json_schema: str
    def __init__(self, kind: _Optional[_Union[StructuredOutput.Kind, str]] = ..., json_schema: _Optional[str] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed", "stop_token_ids", "ignore_eos", "logit_bias", "logprobs", "prompt_logprobs", "structured")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    ignore_eos: bool
    logit_bias: _containers.ScalarMap[int, float]
    logprobs: int
    prompt_logprobs: int
    structured: StructuredOutput
    def __init__(self, max_tokens: _Optional[int] = ..., min_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., seed: _Optional[int] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., ignore_eos: _Optional[bool] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., logprobs: _Optional[int] = ..., prompt_logprobs: _Optional[int] = ..., structured: _Optional[_Union[StructuredOutput, _Mapping]] = ...) -> None: ...

class TokenLogprobs(_message.Message):
    __slots__ = ("token_ids", "logprobs", "ranks")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class PromptLogprob(_message.Message):
    __slots__ = ("present", "logprobs")
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    present: bool
    logprobs: TokenLogprobs
    def __init__(self, present: _Optional[bool] = ..., logprobs: _Optional[_Union[TokenLogprobs, _Mapping]] = ...) -> None: ...

class Ticket(_message.Message):
    __slots__ = ("ticket_id", "worker_id", "epoch", "engine_params", "computed_tokens", "blocks", "block_size_tokens", "kv_bytes", "lease_s", "age_s")
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENGINE_PARAMS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    worker_id: str
    epoch: str
    engine_params: bytes
    computed_tokens: int
    blocks: int
    block_size_tokens: int
    kv_bytes: int
    lease_s: float
    age_s: float
    def __init__(self, ticket_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., epoch: _Optional[str] = ..., engine_params: _Optional[bytes] = ..., computed_tokens: _Optional[int] = ..., blocks: _Optional[int] = ..., block_size_tokens: _Optional[int] = ..., kv_bytes: _Optional[int] = ..., lease_s: _Optional[float] = ..., age_s: _Optional[float] = ...) -> None: ...

class Work(_message.Message):
    __slots__ = ("request_id", "tokens", "sampling", "priority", "cache_salt", "precedence")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    PRECEDENCE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tokens: _containers.RepeatedScalarFieldContainer[int]
    sampling: Sampling
    priority: int
    cache_salt: str
    precedence: Precedence
    def __init__(self, request_id: _Optional[str] = ..., tokens: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., priority: _Optional[int] = ..., cache_salt: _Optional[str] = ..., precedence: _Optional[_Union[Precedence, str]] = ...) -> None: ...
