"""POST /v1/chat/completions, POST /v1/completions and the list of models."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from gateway.http.answering import Answering
from gateway.http.body import read_body
from gateway.http.direct import DirectRoute
from gateway.http.documents import body_of, json_response
from gateway.http.schema import ChatRequest, CompletionRequest
from gateway.http.surface import Surface
from gateway.request.errors import Reason, RequestError


def generation_routes(surface: Surface) -> APIRouter:
    router = APIRouter(tags=["generation"])

    async def answering(request: Request, form: type[ChatRequest] | type[CompletionRequest]) -> Response:
        share = surface.intake.share()
        try:
            data = await read_body(request.scope, request.receive, surface.config, share)
        except BaseException as error:
            share.give_back()
            if isinstance(error, ClientDisconnect):
                return Response(status_code=499)
            raise
        return Answering(surface, form, data, share)

    async def chat_completions(request: Request) -> Response:
        return await answering(request, ChatRequest)

    async def completions(request: Request) -> Response:
        return await answering(request, CompletionRequest)

    for path, endpoint, form, summary in (
        ("/v1/chat/completions", chat_completions, ChatRequest, "Answer a conversation"),
        ("/v1/completions", completions, CompletionRequest, "Continue one or several prompts"),
    ):
        router.add_api_route(
            path, endpoint, methods=["POST"], summary=summary, route_class_override=DirectRoute, **body_of(form)
        )

    @router.get("/v1/models", summary="The model served here")
    async def models(request: Request) -> Response:
        entry = _model(surface)
        return json_response({"object": "list", "data": [entry] if entry else []})

    @router.get("/v1/models/{model:path}", summary="One model")
    async def model(model: str, request: Request) -> Response:
        entry = _model(surface)
        if entry is None or entry["id"] != model:
            raise RequestError(Reason.MODEL_NOT_FOUND, f"The model `{model[:128]}` does not exist here.", param="model")
        return json_response(entry)

    return router


def _model(surface: Surface) -> dict[str, Any] | None:
    name = surface.served.name
    if not name:
        return None
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "tandem",
        "max_model_len": surface.served.window or None,
    }
