"""What operators and orchestrators ask: liveness, readiness, metrics, status, draining."""

from collections.abc import Awaitable
from dataclasses import asdict
from typing import Any, TypeVar

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.cluster.client import WorkerLostError
from gateway.cluster.cluster import UnknownWorkerError
from gateway.cluster.snapshot import ClusterSnapshot
from gateway.cluster.states import WorkerStatus
from gateway.http.body import read_body
from gateway.http.disclosure import headline
from gateway.http.documents import json_response
from gateway.http.errors import plain_error
from gateway.http.exchange import of
from gateway.http.operator_route import OperatorRoute
from gateway.http.surface import Surface
from gateway.http.version import VERSION
from gateway.request.errors import Reason, RequestError
from proto.fault import FaultError
from proto.worker import Role

Done = TypeVar("Done")

MAX_ORDER_BYTES = 4096
#: Workers that an error lists.
MOST_NAMED = 16
_UNKNOWN = (
    "No recent request has this id (`x-tandem-request-id`) here. Each gateway knows its own; a request with a wrong key "
    "or path is not kept."
)
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def operation_routes(surface: Surface) -> APIRouter:
    router, guarded = APIRouter(tags=["operation"]), APIRouter(tags=["operation"], route_class=OperatorRoute)

    @router.get("/livez", summary="Whether the process runs")
    async def livez() -> Response:
        return json_response({"live": True})

    @router.get("/health", summary="Whether the process runs, where clients of vLLM look for it")
    async def health() -> Response:
        return Response()

    @router.get("/readyz", summary="Whether requests can be served, in which mode, and what is missing")
    async def readyz(request: Request) -> Response:
        snapshot = surface.cluster.snapshot()
        missing = await _missing(surface, snapshot)
        body: dict[str, Any] = {"ready": not missing, "mode": snapshot.mode, "missing": missing}
        if of(request.scope).cleared:
            workers = {one.worker_id: f"{one.role.value}, {one.status.value}" for one in snapshot.workers}
            body["workers"] = workers
        else:
            body["missing"] = headline(missing)
        return json_response(body, 503 if missing else 200, {"retry-after": "2"} if missing else None)

    @router.get("/metrics", summary="Metrics in the Prometheus text format")
    async def metrics(request: Request) -> Response:
        return Response(surface.metrics(of(request.scope).cleared), media_type=METRICS_TYPE)

    @guarded.get("/tandem/v1/status", summary="Workers, pairs, leases and requests in flight")
    async def status() -> Response:
        return json_response(await _status(surface))

    @guarded.get("/tandem/v1/decisions/{request_id}", summary="Why a recent request was served or refused as it was")
    async def decisions(request_id: str) -> Response:
        found, failed, now_s = surface.decisions(request_id), surface.failed.of(request_id), surface.clock()
        if not found and failed is None:
            return plain_error(404, _UNKNOWN, "request_not_found")
        prompts, error = [one.document(now_s) for one in found], failed.document(now_s) if failed else None
        return json_response({"request_id": request_id, "prompts": prompts, "error": error})

    @guarded.get("/tandem/v1/traffic", summary="Arrivals, lengths and drifts of late, for plans")
    async def traffic(request: Request) -> Response:
        within_s, rows = _wanted_traffic(request)
        return json_response(surface.traffic(within_s, rows))

    @guarded.post("/tandem/v1/workers/{worker_id}/drain", summary="Give a worker no new work")
    async def drain(worker_id: str, request: Request) -> Response:
        return await _drain(surface, worker_id, resume=await _wants_resume(surface, request))

    @guarded.post("/tandem/v1/workers/{worker_id}/resume", summary="Give a drained worker work again")
    async def resume(worker_id: str) -> Response:
        return await _drain(surface, worker_id, resume=True)

    @guarded.post("/tandem/v1/workers/{worker_id}/role", summary="Change what a worker does while it runs")
    async def role(worker_id: str, request: Request) -> Response:
        return await _set_role(surface, worker_id, await _wanted_role(surface, request))

    router.include_router(guarded)
    return router


async def _missing(surface: Surface, snapshot: ClusterSnapshot) -> str:
    """What keeps this gateway from serving; empty when nothing does."""
    return "the gateway is draining" if surface.draining else snapshot.missing or await surface.served.missing()


async def _status(surface: Surface) -> dict[str, Any]:
    snapshot, policy = surface.cluster.snapshot(), surface.policy_report()
    return {
        "version": VERSION,
        "policy": asdict(policy) if policy else None,
        "model": surface.served.name,
        "draining": surface.draining,
        "join_address": surface.cluster.join_address,
        "limits": _limits(surface),
        "integrity": asdict(surface.cluster.integrity()),
        **asdict(snapshot),
        "missing": await _missing(surface, snapshot),
    }


def _limits(surface: Surface) -> dict[str, Any]:
    """What decides on admission, and what becomes of a running request when KV runs out: both engines recompute."""
    config = surface.config
    return {
        "max_queued": config.admission.max_queued,
        "queue_s": config.deadlines.queue_s,
        "preemption": "recompute",
    }


async def order(surface: Surface, request: Request, most_bytes: int = MAX_ORDER_BYTES) -> Any:
    """The body of an order: JSON, None if it is none, {} if it is empty."""
    with surface.intake.share() as share:
        data = await read_body(request.scope, request.receive, surface.config, share, most_bytes)
    try:
        return orjson.loads(data) if data.strip() else {}
    except orjson.JSONDecodeError:
        return None


def _wanted_traffic(request: Request) -> tuple[float, bool]:
    """`within_s`: of requests that arrived so lately. `rows=1`: each of them, beside what they are together."""
    asked = dict(request.query_params)
    within, rows = asked.pop("within_s", "inf"), asked.pop("rows", "0")
    try:
        within_s = float(within)
    except ValueError:
        within_s = 0.0
    if asked or rows not in ("0", "1") or not within_s > 0:
        raise RequestError(
            Reason.INVALID_REQUEST, "There are `within_s`, seconds above 0, and `rows`, 0 or 1.", param="within_s"
        )
    return within_s, rows == "1"


async def _wanted_role(surface: Surface, request: Request) -> Role:
    body = await order(surface, request)
    role = body.get("role") if isinstance(body, dict) and body.keys() == {"role"} else None
    if not isinstance(role, str) or role not in set(Role):
        raise RequestError(
            Reason.INVALID_REQUEST, f'The body must be {{"role": …}} with one of {", ".join(Role)}.', param="role"
        )
    return Role(role)


async def _wants_resume(surface: Surface, request: Request) -> bool:
    body = await order(surface, request)
    if not isinstance(body, dict) or not isinstance(body.get("resume", False), bool) or body.keys() - {"resume"}:
        raise RequestError(Reason.INVALID_REQUEST, 'The body may be empty or {"resume": true}.', param="resume")
    return bool(body.get("resume", False))


async def _drain(surface: Surface, worker_id: str, *, resume: bool) -> Response:
    outstanding = await _carried_out(surface, worker_id, surface.cluster.drain(worker_id, resume=resume))
    if isinstance(outstanding, Response):
        return outstanding
    return json_response({"worker_id": worker_id, "draining": not resume, "outstanding": outstanding})


async def _set_role(surface: Surface, worker_id: str, role: Role) -> Response:
    before = await _carried_out(surface, worker_id, surface.cluster.set_role(worker_id, role))
    if isinstance(before, Response):
        return before
    return json_response({"worker_id": worker_id, "role": role.value, "before": before.value})


def _connected(snapshot: ClusterSnapshot) -> str:
    lost = (WorkerStatus.CONNECTING, WorkerStatus.GONE)
    names = sorted(one.worker_id for one in snapshot.workers if one.status not in lost)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"those that are: {', '.join(names[:MOST_NAMED])}{more}" if names else "nor is any other"


async def _carried_out(surface: Surface, worker_id: str, order: Awaitable[Done]) -> Done | Response:
    """What the worker answered, or the answer to give in its place."""
    try:
        return await order
    except UnknownWorkerError:
        known = _connected(surface.cluster.snapshot())
        return plain_error(404, f"No worker `{worker_id[:128]}` is connected; {known}.", "worker_not_found")
    except WorkerLostError as error:
        raise RequestError(Reason.WORKER_LOST, f"{worker_id} was lost before it had answered: {error}") from error
    except TimeoutError as error:
        raise RequestError(Reason.REQUEST_TIMEOUT, f"{worker_id} did not answer in time.") from error
    except FaultError as error:
        return plain_error(502, f"{worker_id} refused: {error}", "worker_refused")
