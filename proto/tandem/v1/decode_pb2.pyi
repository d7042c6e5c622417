from proto.tandem.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RefusalReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_REASON_UNSPECIFIED: _ClassVar[RefusalReason]
    REFUSAL_REASON_NEVER_FITS: _ClassVar[RefusalReason]
    REFUSAL_REASON_KV_BUSY: _ClassVar[RefusalReason]
    REFUSAL_REASON_SLOTS_BUSY: _ClassVar[RefusalReason]
    REFUSAL_REASON_DRAINING: _ClassVar[RefusalReason]
    REFUSAL_REASON_WRONG_ROLE: _ClassVar[RefusalReason]
    REFUSAL_REASON_ENGINE_DEAD: _ClassVar[RefusalReason]
REFUSAL_REASON_UNSPECIFIED: RefusalReason
REFUSAL_REASON_NEVER_FITS: RefusalReason
REFUSAL_REASON_KV_BUSY: RefusalReason
REFUSAL_REASON_SLOTS_BUSY: RefusalReason
REFUSAL_REASON_DRAINING: RefusalReason
REFUSAL_REASON_WRONG_ROLE: RefusalReason
REFUSAL_REASON_ENGINE_DEAD: RefusalReason

class ReserveRequest(_message.Message):
    __slots__ = ("gateway_id", "request_id", "prompt_tokens", "growth_tokens", "ttl_s", "sequences", "lengths", "limit_tokens", "arrival_s", "lengths_of", "generated_tokens", "emergency", "moves")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GROWTH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_S_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_OF_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EMERGENCY_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    request_id: str
    prompt_tokens: int
    growth_tokens: int
    ttl_s: float
    sequences: int
    lengths: _containers.RepeatedScalarFieldContainer[int]
    limit_tokens: int
    arrival_s: float
    lengths_of: int
    generated_tokens: int
    emergency: bool
    moves: bool
    def __init__(self, gateway_id: _Optional[str] = ..., request_id: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., growth_tokens: _Optional[int] = ..., ttl_s: _Optional[float] = ..., sequences: _Optional[int] = ..., lengths: _Optional[_Iterable[int]] = ..., limit_tokens: _Optional[int] = ..., arrival_s: _Optional[float] = ..., lengths_of: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., emergency: _Optional[bool] = ..., moves: _Optional[bool] = ...) -> None: ...

class ReserveReply(_message.Message):
    __slots__ = ("reservation", "refusal")
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    reservation: Reservation
    refusal: Refusal
    def __init__(self, reservation: _Optional[_Union[Reservation, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Reservation(_message.Message):
    __slots__ = ("reservation_id", "blocks", "ttl_s")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    blocks: int
    ttl_s: float
    def __init__(self, reservation_id: _Optional[str] = ..., blocks: _Optional[int] = ..., ttl_s: _Optional[float] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("reservation_id", "gateway_id")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    gateway_id: str
    def __init__(self, reservation_id: _Optional[str] = ..., gateway_id: _Optional[str] = ...) -> None: ...

class RenewReply(_message.Message):
    __slots__ = ("renewed",)
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    renewed: bool
    def __init__(self, renewed: _Optional[bool] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "blocks_needed", "blocks_total", "blocks_used", "blocks_reserved", "slots_total", "slots_used", "peak_blocks", "limit_blocks", "risk", "peak_step")
    REASON_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_NEEDED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_USED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_RESERVED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SLOTS_USED_FIELD_NUMBER: _ClassVar[int]
    PEAK_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    PEAK_STEP_FIELD_NUMBER: _ClassVar[int]
    reason: RefusalReason
    blocks_needed: int
    blocks_total: int
    blocks_used: int
    blocks_reserved: int
    slots_total: int
    slots_used: int
    peak_blocks: float
    limit_blocks: float
    risk: float
    peak_step: int
    def __init__(self, reason: _Optional[_Union[RefusalReason, str]] = ..., blocks_needed: _Optional[int] = ..., blocks_total: _Optional[int] = ..., blocks_used: _Optional[int] = ..., blocks_reserved: _Optional[int] = ..., slots_total: _Optional[int] = ..., slots_used: _Optional[int] = ..., peak_blocks: _Optional[float] = ..., limit_blocks: _Optional[float] = ..., risk: _Optional[float] = ..., peak_step: _Optional[int] = ...) -> None: ...

class ReleaseReservationRequest(_message.Message):
    __slots__ = ("reservation_id", "gateway_id", "request_id")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    gateway_id: str
    request_id: str
    def __init__(self, reservation_id: _Optional[str] = ..., gateway_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class ReleaseReservationReply(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: bool
    def __init__(self, released: _Optional[bool] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("hello", "start", "abort", "writer_lost", "hand_over")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    WRITER_LOST_FIELD_NUMBER: _ClassVar[int]
    HAND_OVER_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    start: Start
    abort: Abort
    writer_lost: WriterLost
    hand_over: HandOver
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ..., writer_lost: _Optional[_Union[WriterLost, _Mapping]] = ..., hand_over: _Optional[_Union[HandOver, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("gateway_id", "epoch")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    epoch: str
    def __init__(self, gateway_id: _Optional[str] = ..., epoch: _Optional[str] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("sequence", "reservation_id", "work", "ticket")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    reservation_id: str
    work: _common_pb2.Work
    ticket: _common_pb2.Ticket
    def __init__(self, sequence: _Optional[int] = ..., reservation_id: _Optional[str] = ..., work: _Optional[_Union[_common_pb2.Work, _Mapping]] = ..., ticket: _Optional[_Union[_common_pb2.Ticket, _Mapping]] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class WriterLost(_message.Message):
    __slots__ = ("sequence", "worker_id")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    worker_id: str
    def __init__(self, sequence: _Optional[int] = ..., worker_id: _Optional[str] = ...) -> None: ...

class HandOver(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("deltas",)
    DELTAS_FIELD_NUMBER: _ClassVar[int]
    deltas: _containers.RepeatedCompositeFieldContainer[SequenceDelta]
    def __init__(self, deltas: _Optional[_Iterable[_Union[SequenceDelta, _Mapping]]] = ...) -> None: ...

class SequenceDelta(_message.Message):
    __slots__ = ("sequence", "tokens", "logprobs", "finish", "fault", "cached_tokens", "prompt_logprobs", "queue_s", "transfer_s", "compute_s", "ticket", "stays")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_S_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    STAYS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprobs]
    finish: _common_pb2.FinishReason
    fault: _common_pb2.Fault
    cached_tokens: int
    prompt_logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.PromptLogprob]
    queue_s: float
    transfer_s: float
    compute_s: float
    ticket: _common_pb2.Ticket
    stays: bool
    def __init__(self, sequence: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprobs, _Mapping]]] = ..., finish: _Optional[_Union[_common_pb2.FinishReason, str]] = ..., fault: _Optional[_Union[_common_pb2.Fault, _Mapping]] = ..., cached_tokens: _Optional[int] = ..., prompt_logprobs: _Optional[_Iterable[_Union[_common_pb2.PromptLogprob, _Mapping]]] = ..., queue_s: _Optional[float] = ..., transfer_s: _Optional[float] = ..., compute_s: _Optional[float] = ..., ticket: _Optional[_Union[_common_pb2.Ticket, _Mapping]] = ..., stays: _Optional[bool] = ...) -> None: ...
