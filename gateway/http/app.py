"""Puts the HTTP surface together."""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from gateway.http.connection import BrokenStreamError
from gateway.http.disclosure import disclosed
from gateway.http.documents import describe
from gateway.http.edge import Edge
from gateway.http.errors import error_response, internal, no_such_path, plain_error
from gateway.http.exchange import of
from gateway.http.generation_routes import generation_routes
from gateway.http.operation_routes import operation_routes
from gateway.http.policy_routes import policy_routes
from gateway.http.surface import Surface
from gateway.http.text_routes import text_routes
from gateway.http.version import VERSION
from gateway.request.errors import Reason, RequestError

log = logging.getLogger(__name__)

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def build_http(surface: Surface, lifespan: Lifespan | None = None) -> FastAPI:
    app = FastAPI(
        title="tandem",
        summary="OpenAI-compatible serving with prefill and decode on separate workers",
        version=VERSION,
        lifespan=lifespan,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
    )
    for routes in (generation_routes, text_routes, operation_routes, policy_routes):
        app.include_router(routes(surface))
    app.add_middleware(Edge, surface=surface)

    def request_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestError)
        exchange = of(request.scope)
        surface.ended_in(error, exchange.request_id)
        return error_response(disclosed(error, exchange))

    app.add_exception_handler(RequestError, request_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_exception_handler(Exception, _defect)
    describe(app, VERSION)
    return app


def _validation_error(request: Request, error: Exception) -> Response:
    return error_response(RequestError(Reason.INVALID_REQUEST, "A part of the path is not valid."))


def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


def _http_error(request: Request, error: Exception) -> Response:
    """Wrong paths and methods, in the shape clients parse errors in."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return no_such_path(request.method, request.url.path)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "").replace("GET", "GET, HEAD")
        headers = {**(error.headers or {}), "Allow": allowed}
        return plain_error(405, f"{request.method} is not allowed here; use {allowed}.", "method_not_allowed", headers)
    return plain_error(error.status_code, str(error.detail), "http_error", error.headers)


def _defect(request: Request, error: Exception) -> Response:
    exchange = of(request.scope)
    ids = {name.decode(): value.decode() for name, value in exchange.headers()}
    if isinstance(error, BrokenStreamError):  # its cause has been logged, and the head is out: nobody reads this
        return error_response(internal(error), ids)
    return error_response(disclosed(internal(error), exchange), ids)
