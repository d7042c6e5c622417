from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class JoinRequest(_message.Message):
    __slots__ = ("worker_id", "epoch", "address")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    epoch: str
    address: str
    def __init__(self, worker_id: _Optional[str] = ..., epoch: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("accepted", "reason", "next_join_s")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NEXT_JOIN_S_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    next_join_s: float
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., next_join_s: _Optional[float] = ...) -> None: ...
