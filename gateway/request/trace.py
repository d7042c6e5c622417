"""The trace that a request is part of, as its client says."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trace:
    """Of the W3C's traceparent: ids in hexadecimal; `span_id` is that of whoever asks."""

    trace_id: str
    span_id: str
    sampled: bool
