"""The decode pool: reservations of KV, and answers streamed one frame an engine step."""

from decode_pool.expected import Admission
from decode_pool.service import DecodeLimits, DecodeService

__all__ = ["Admission", "DecodeLimits", "DecodeService"]
