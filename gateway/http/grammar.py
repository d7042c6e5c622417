"""A JSON schema that binds an answer, for the engine to make a grammar of."""

from typing import Any

import orjson

from gateway.request.errors import Reason, RequestError
from gateway.wording import counted
from proto.sampling import StructuredKind, StructuredOutput

#: An engine reads it before it does anything else, for everybody: some 0.2 s for a megabyte, and more for a bad one.
MAX_SCHEMA_BYTES = 256 * 1024


def grammar(schema: dict[str, Any], param: str) -> StructuredOutput:
    """Raises RequestError."""
    try:
        text = orjson.dumps(schema)
    except orjson.JSONEncodeError:  # it reads deeper nesting than it writes
        raise RequestError(
            Reason.INVALID_REQUEST, f"`{param}`: the schema is nested too deeply.", param=param
        ) from None
    if len(text) > MAX_SCHEMA_BYTES:
        raise RequestError(
            Reason.INVALID_REQUEST,
            f"`{param}`: the schema that binds the answer has {counted(len(text), 'byte')}; at most "
            f"{counted(MAX_SCHEMA_BYTES, 'byte')} are taken. Make it shorter.",
            param=param,
            numbers={"schema_bytes": len(text), "max_schema_bytes": MAX_SCHEMA_BYTES},
        )
    return StructuredOutput(StructuredKind.JSON_SCHEMA, text.decode())
