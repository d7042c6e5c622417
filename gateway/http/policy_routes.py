"""What operators ask and order about the policy: which is in force, another one, the one before, a canary."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.http.documents import json_response
from gateway.http.errors import plain_error
from gateway.http.exchange import of
from gateway.http.operation_routes import order
from gateway.http.operator_route import OperatorRoute
from gateway.http.surface import Surface
from gateway.policy_versions.document import MAX_POLICY_BYTES, WrongPolicyError, plain
from gateway.policy_versions.guard import Guard
from gateway.policy_versions.history import Change, HistoryError
from gateway.policy_versions.outcomes import Account
from gateway.policy_versions.versions import Changed, ConflictError, Trial
from gateway.request.errors import Reason, RequestError

Done = TypeVar("Done")

MAX_NOTE = 500
MAX_NAME = 64


def policy_routes(surface: Surface) -> APIRouter:
    router = APIRouter(tags=["policy"], route_class=OperatorRoute)

    @router.get("/tandem/v1/policy", summary="The policy in force: its version, all its settings, since when")
    async def show() -> Response:
        return json_response(_in_force(surface))

    @router.post("/tandem/v1/policy/check", summary="Whether a policy could be applied, and what it would change")
    async def check(request: Request) -> Response:
        body = await _body(surface, request, {"settings": dict})
        return _done(lambda: surface.versions.check(body["settings"]), lambda found: _checked(surface, *found))

    @router.put("/tandem/v1/policy", summary="Puts another policy in force, as a whole or not at all")
    async def apply(request: Request) -> Response:
        body = await _body(surface, request, {"settings": dict, "note": str})
        by = of(request.scope).tenant
        return _done(lambda: surface.versions.apply(body["settings"], by, _note(body)), _changed)

    @router.get("/tandem/v1/policy/history", summary="Which policies were in force, newest first")
    async def history() -> Response:
        kept = surface.versions.history
        changes = [_change(one) for one in reversed(list(kept))]
        return json_response({"file": str(kept.file) if kept.file else None, "changes": changes})

    @router.post("/tandem/v1/policy/rollback", summary="Goes back to the policy before, or to a named one")
    async def roll_back(request: Request) -> Response:
        body = await _body(surface, request, {"version": str, "note": str})
        version, by = body.get("version", "")[:MAX_NAME], of(request.scope).tenant
        return _done(lambda: surface.versions.roll_back(version, by, _note(body)), _changed)

    @router.get("/tandem/v1/policy/canary", summary="The version on trial beside the one in force: what became of each")
    async def trial() -> Response:
        return _done(surface.versions.compared, lambda found: _compared(surface, found))

    @router.put("/tandem/v1/policy/canary", summary="Tries a policy out on a share of the requests")
    async def try_out(request: Request) -> Response:
        body = await _body(surface, request, {"settings": dict, "share": float, "note": str, "guard": dict})
        share, by = float(body.get("share", 0.0)), of(request.scope).tenant
        if not 0 < share < 1:
            raise RequestError(Reason.INVALID_REQUEST, "`share` must lie between 0 and 1.", param="share")
        guard = _guard(body.get("guard", {}))
        return _done(lambda: surface.versions.try_out(body["settings"], share, by, _note(body), guard), canary)

    @router.post("/tandem/v1/policy/canary/promote", summary="Puts the policy on trial in force for all requests")
    async def promote(request: Request) -> Response:
        body = await _body(surface, request, {"note": str})
        return _done(lambda: surface.versions.promote(of(request.scope).tenant, _note(body)), _changed)

    @router.post("/tandem/v1/policy/canary/abort", summary="Ends the trial; the policy in force is for all requests")
    async def abort(request: Request) -> Response:
        body = await _body(surface, request, {"note": str})
        return _done(lambda: surface.versions.abort(of(request.scope).tenant, _note(body)), canary)

    return router


def _compared(surface: Surface, found: Mapping[str, Account]) -> dict[str, Any]:
    assert surface.versions.trial is not None
    return {
        "in_force": surface.versions.version,
        "canary": canary(surface.versions.trial),
        "outcomes": {version: account.document() for version, account in found.items()},
    }


def _in_force(surface: Surface) -> dict[str, Any]:
    versions = surface.versions
    last = versions.history.in_force
    return {
        "policy": versions.version,
        "settings": plain(versions.policy),
        "since": last.at if last else None,
        "action": last.action.value if last else None,
        "by": last.by if last else None,
        "note": last.note if last else None,
        "canary": canary(versions.trial) if versions.trial else None,
    }


def canary(trial: Trial) -> dict[str, Any]:
    return {
        "policy": trial.policy.name,
        "share": trial.share,
        "since": trial.since,
        "by": trial.by,
        "note": trial.note,
        "tried": list(trial.covered.tried),
        "not_tried": list(trial.covered.not_tried),
        "guard": asdict(trial.guard),
        "settings": plain(trial.policy),
    }


def _checked(surface: Surface, policy: Any, differs: Any) -> dict[str, Any]:
    return {
        "policy": policy.name,
        "in_force": surface.versions.version,
        "differences": [asdict(each) for each in differs],
        "warnings": _strangers(surface, policy),
    }


def _strangers(surface: Surface, policy: Any) -> list[str]:
    """Tenants that no key belongs to: most likely misspelt."""
    known = surface.config.api_keys
    if not known:
        return []
    named = [*policy.tenants, *(tenant for klass in policy.classes.values() for tenant in klass.tenants)]
    return [f"no API key belongs to tenant {tenant}" for tenant in dict.fromkeys(named) if tenant not in known]


def _changed(changed: Changed) -> dict[str, Any]:
    return {
        "policy": changed.after,
        "before": changed.before,
        "differences": [asdict(each) for each in changed.differences],
    }


def _change(change: Change) -> dict[str, Any]:
    document = asdict(change)
    del document["configured"]
    return document


async def _body(surface: Surface, request: Request, known: dict[str, type]) -> dict[str, Any]:
    """An object with these keys at most; `settings`, where it is known, must be there. Raises RequestError."""
    body = await order(surface, request, MAX_POLICY_BYTES)
    if not isinstance(body, dict) or body.keys() - known or ("settings" in known and "settings" not in body):
        shape = ", ".join(f'"{key}": …' for key in known)
        raise RequestError(Reason.INVALID_REQUEST, f"The body must be {{{shape}}}.")
    for key, value in body.items():
        kinds = (int, float) if known[key] is float else known[key]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise RequestError(Reason.INVALID_REQUEST, f"`{key}` must be of type {known[key].__name__}.", param=key)
    return body


def _guard(given: dict[str, Any]) -> Guard:
    """Raises RequestError."""
    try:
        return Guard(**given)
    except (TypeError, ValueError) as error:
        known = "`refused` (share), `ttft` (factor), `least` (requests)"
        raise RequestError(Reason.INVALID_REQUEST, f"`guard` may have {known}: {error}.", param="guard") from None


def _note(body: dict[str, Any]) -> str:
    """One line, printable."""
    text = "".join(char if char.isprintable() else " " for char in body.get("note", ""))
    return text[:MAX_NOTE].strip()


def _done(action: Callable[[], Done], shown: Callable[[Done], dict[str, Any]]) -> Response:
    """What came of it; nothing has changed where the status is an error's."""
    try:
        return json_response(shown(action()))
    except WrongPolicyError as error:
        return plain_error(400, f"No policy: {error}", "invalid_policy")
    except ConflictError as error:
        return plain_error(409, f"{error}.", "policy_conflict")
    except HistoryError as error:
        return plain_error(500, f"Nothing was changed: {error}.", "policy_not_recorded")
