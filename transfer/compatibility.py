"""Whether one worker's KV means the same thing to another. Pure, and the only such rule: gateway and engines ask it
(B-62, B-64)."""

from collections.abc import Callable

from proto.worker import WorkerInfo

#: What must be equal, with the words an operator knows it by.
_EQUAL: tuple[tuple[str, Callable[[WorkerInfo], object]], ...] = (
    ("model hash", lambda info: info.model_hash),
    ("revision", lambda info: info.revision),
    ("dtype", lambda info: info.dtype),
    ("KV layout", lambda info: info.kv_layout),
    ("block size", lambda info: info.block_size_tokens),
    ("engine", lambda info: info.engine),
    ("engine version", lambda info: info.engine_version),
    ("pipeline stages", lambda info: info.pp),
)


def incompatibilities(writer: WorkerInfo, reader: WorkerInfo) -> list[str]:
    """Every reason why `reader` cannot read KV that `writer` wrote; empty when it can."""
    reasons = [
        f"{name} differs: {writer.worker_id} has {value(writer)}, {reader.worker_id} has {value(reader)}"
        for name, value in _EQUAL
        if value(writer) != value(reader)
    ]
    large, small = max(writer.tp, reader.tp), min(writer.tp, reader.tp)
    if small < 1 or large % small:
        reasons.append(f"tensor parallel degrees {writer.tp} and {reader.tp} do not divide one another")
    return reasons
