"""Domain nouns to protobuf messages and back; nothing outside `proto` sees a protobuf type.

Names are `<noun>_to_pb` and `<noun>_from_pb`. `from_pb` raises `WireError` for a message that breaks the contract.
"""

from proto.convert.common import (
    fault_from_pb,
    fault_to_pb,
    logprobs_from_pb,
    logprobs_to_pb,
    sampling_from_pb,
    sampling_to_pb,
    ticket_from_pb,
    ticket_to_pb,
    work_from_pb,
    work_to_pb,
)
from proto.convert.decode import (
    command_from_pb,
    command_to_pb,
    frame_from_pb,
    frame_to_pb,
    reserve_reply_from_pb,
    reserve_reply_to_pb,
    reserve_request_from_pb,
    reserve_request_to_pb,
)
from proto.convert.enums import WireError
from proto.convert.prefill import prefill_done_from_pb, prefill_done_to_pb, prefill_reply_from_pb, prefill_reply_to_pb
from proto.convert.worker import (
    join_reply_from_pb,
    join_reply_to_pb,
    join_request_from_pb,
    join_request_to_pb,
    role_from_pb,
    role_to_pb,
    warm_reply_from_pb,
    warm_reply_to_pb,
    worker_info_from_pb,
    worker_info_to_pb,
    worker_state_from_pb,
    worker_state_to_pb,
)

__all__ = [
    "WireError",
    "command_from_pb",
    "command_to_pb",
    "fault_from_pb",
    "fault_to_pb",
    "frame_from_pb",
    "frame_to_pb",
    "join_reply_from_pb",
    "join_reply_to_pb",
    "join_request_from_pb",
    "join_request_to_pb",
    "logprobs_from_pb",
    "logprobs_to_pb",
    "prefill_done_from_pb",
    "prefill_done_to_pb",
    "prefill_reply_from_pb",
    "prefill_reply_to_pb",
    "reserve_reply_from_pb",
    "reserve_reply_to_pb",
    "reserve_request_from_pb",
    "reserve_request_to_pb",
    "role_from_pb",
    "role_to_pb",
    "sampling_from_pb",
    "sampling_to_pb",
    "ticket_from_pb",
    "ticket_to_pb",
    "warm_reply_from_pb",
    "warm_reply_to_pb",
    "work_from_pb",
    "work_to_pb",
    "worker_info_from_pb",
    "worker_info_to_pb",
    "worker_state_from_pb",
    "worker_state_to_pb",
]
