"""JSON responses, and the OpenAPI document that describes bodies the gateway parses by itself."""

from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from gateway.http.fields import Body
from gateway.http.schema import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest

BODIES: tuple[type[Body], ...] = (ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest)
_REFERENCE = "#/components/schemas/{model}"

_ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string", "description": "One of a closed list of reasons."},
                "numbers": {"type": "object", "additionalProperties": {"type": "number"}},
                "retry_after_s": {"type": "number"},
                "policy": {"type": "string", "description": "Version of the policy that refused."},
            },
        }
    },
}


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status, headers, "application/json")


def body_of(form: type[Body]) -> dict[str, Any]:
    """Route arguments: the handler reads the body itself, with its own limits and error objects."""
    reference = {"$ref": _REFERENCE.format(model=form.__name__)}
    return {
        "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}}
    }


def describe(app: FastAPI, version: str) -> None:
    """Replaces the application's OpenAPI document by one with the bodies and the error object."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, version)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation extends it


def _document(app: FastAPI, version: str) -> dict[str, Any]:
    document = get_openapi(title="tandem", version=version, summary=app.summary, routes=app.routes)
    _, schemas = models_json_schema([(form, "validation") for form in BODIES], ref_template=_REFERENCE)
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.update(schemas["$defs"])
    components["Error"] = _ERROR_SCHEMA
    for unused in ("HTTPValidationError", "ValidationError"):
        components.pop(unused, None)
    error = {
        "description": "An OpenAI error object",
        "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model="Error")}}},
    }
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = error
    return document
