"""POST /tokenize and POST /detokenize, in the shapes that vLLM gave them."""

from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from gateway.http.body import parsed, read_body
from gateway.http.documents import body_of, json_response
from gateway.http.fields import Body
from gateway.http.intake import Share
from gateway.http.prompts import chat_text, chat_tokens, known_tokens
from gateway.http.schema import DetokenizeRequest, TokenizeRequest
from gateway.http.served import Served
from gateway.http.surface import Surface
from gateway.request.errors import Reason, RequestError

Form = TypeVar("Form", bound=Body)


def text_routes(surface: Surface) -> APIRouter:
    router = APIRouter(tags=["text"])

    async def body_as(request: Request, form: type[Form], share: Share) -> Form:
        data = await read_body(request.scope, request.receive, surface.config, share)
        return await parsed(data, form, surface.texts)

    @router.post("/tokenize", summary="The tokens of a prompt or of a conversation", **body_of(TokenizeRequest))
    async def tokenize(request: Request) -> Response:
        with surface.intake.share() as share:
            try:
                body = await body_as(request, TokenizeRequest, share)
            except ClientDisconnect:
                return Response(status_code=499)
            served = await surface.served.get(body.model)
            return json_response(await surface.texts.run(lambda: _tokenize(body, served)))

    @router.post("/detokenize", summary="The text of tokens", **body_of(DetokenizeRequest))
    async def detokenize(request: Request) -> Response:
        with surface.intake.share() as share:
            try:
                body = await body_as(request, DetokenizeRequest, share)
            except ClientDisconnect:
                return Response(status_code=499)
            served = await surface.served.get(body.model)
            return json_response({"prompt": await surface.texts.run(lambda: _detokenize(body, served))})

    return router


def _detokenize(body: DetokenizeRequest, served: Served) -> str:
    tokens = known_tokens(body.tokens, served.vocab_size, "tokens")
    return served.tokenizer.decode(tokens, skip_special_tokens=False)


def _tokenize(body: TokenizeRequest, served: Served) -> dict[str, Any]:
    tokenizer = served.tokenizer
    if (body.prompt is None) == (body.messages is None):
        raise RequestError(Reason.INVALID_REQUEST, "Send either `prompt` or `messages`.", param="prompt")
    if body.messages is not None:
        text = chat_text(
            tokenizer,
            body.messages,
            add_generation_prompt=body.add_generation_prompt is not False,
            extra=body.chat_template_kwargs,
            tools=body.tools or (),
        )
        tokens = chat_tokens(tokenizer, text, add_special_tokens=bool(body.add_special_tokens))
    else:
        tokens = tokenizer.encode(body.prompt or "", add_special_tokens=body.add_special_tokens is not False)
    strings = [tokenizer.token_string(token) for token in tokens] if body.return_token_strs else None
    return {"count": len(tokens), "max_model_len": served.window, "tokens": tokens, "token_strs": strings}
