"""What several gateways of one fleet tell of their traffic, as if there were one of them. Pure (R-63)."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.observe.traffic import Asked, Known, Seen
from loadgen.failure import LoadgenError
from loadgen.workload.observed import SCHEMA

#: What a drift event tells, and of which kind each of it is.
_EVENT: dict[str, type | tuple[type, ...]] = {
    "number": int,
    "age_s": (int, float),
    "requests_since": int,
    "change": str,
    "class": list,
}

#: No figure is larger, so that all of them can be added up, divided and shown.
_MOST = 1e15

_LENGTHS = ("mean", "p50", "p90", "p99")


class OneFleetError(LoadgenError):
    """These are not the gateways of one fleet, each named once: asking again is of no use."""


@dataclass(frozen=True, slots=True)
class Who:
    """Which gateway has told. All empty for one of an older version; `model` is, too, before a worker has joined."""

    id: str = ""
    version: str = ""
    model: str = ""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Who":
        told = document.get("gateway")
        if not isinstance(told, Mapping):
            return cls()
        return cls(*(str(told.get(key) or "") for key in ("id", "version", "model")))


class Identities:
    """Who has answered where, over time. Behind the address of a load balancer gateways take turns."""

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    def see(self, accounts: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises OneFleetError where one comes back after another: a gateway that was started anew does not."""
        for where, account in accounts.items():
            name, known = Who.of(account).id, self._known.setdefault(where, [])
            if known[-1:] == [name]:
                continue
            if name in known:
                raise OneFleetError(
                    f"{where} is answered by {known[-1]} and {name} in turn, as by a load balancer: name each gateway itself"
                )
            known.append(name)


def checked(where: str, document: Any) -> dict[str, Any]:
    """An account with all that is read here in it. Raises LoadgenError."""
    if not isinstance(document, dict) or "schema" not in document:
        raise LoadgenError(f"what answers at {where} tells no traffic; name a gateway with --endpoint")
    if document["schema"] != SCHEMA:
        raise LoadgenError(
            f"{where}: not a {SCHEMA} document: {document['schema']!r}; use the tandem of that gateway's version"
        )
    try:
        requests, drifts = document["requests"], document["drifts"]
        sound = isinstance(requests, int) and isinstance(drifts["count"], int)
        if not (sound and all(map(_number, _shown(document))) and all(map(_told, drifts["newest"]))):
            raise ValueError("a figure of another kind")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LoadgenError(f"{where}: not as {SCHEMA} has it ({error}); is it a gateway?") from None
    return document


def _shown(document: Mapping[str, Any]) -> Iterator[Any]:
    """Figures that a person is shown. Raises KeyError and the like where one is not there."""
    yield from (document["window_s"], document["requests"], document["known"]["cut"], document["known"]["open"])
    yield from (figure for figure in (document["rate_ps"], document["gap_cv"]) if figure is not None)
    for one in document["classes"].values():
        yield from (one["requests"], one["cached_share"])
        yield from (lengths[key] for lengths in (one["prompt"], one["output"]) for key in _LENGTHS)


def _told(event: Mapping[str, Any]) -> bool:
    kinds = all(isinstance(event[key], kind) for key, kind in _EVENT.items())
    return kinds and _number(event["age_s"]) and all(isinstance(part, str) for part in event["class"])


def one_fleet(accounts: Mapping[str, Mapping[str, Any]]) -> None:
    """By where each was asked. Raises LoadgenError where they cannot be added up."""
    if len(accounts) < 2:
        return
    told = {where: Who.of(account) for where, account in accounts.items()}
    for where, who in told.items():
        if not who.id:
            raise LoadgenError(
                f"{where} does not say which gateway it is, as older versions do not: upgrade it, or watch it alone"
            )
        twin = next(other for other, one in told.items() if one.id == who.id)
        if twin != where:
            raise OneFleetError(f"{twin} and {where} are one gateway, {who.id}: name each once, and no load balancer")
    (first, one), *others = told.items()
    for where, who in others:
        if who.version != one.version:
            raise LoadgenError(
                f"{first} runs tandem {one.version}, {where} tandem {who.version}: bring them to one version, "
                "or watch each alone"
            )
    serving = {who.model: where for where, who in told.items() if who.model}
    if len(serving) > 1:
        (model, where), (other, there), *_ = serving.items()
        raise OneFleetError(f"{where} serves {model}, {there} {other}: a plan is for one model, so watch each alone")


def merged(accounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One account, of the time that all of them know. Without rows it has what a watch asks for; lengths need rows.

    Raises LoadgenError.
    """
    gateways = [_part(account) for account in accounts]
    if len(accounts) == 1:
        return {**accounts[0], "drifts": _drifts(accounts, [[]]), "gateways": gateways}
    window_s = min(float(account["window_s"]) for account in accounts)
    if not all("rows" in account for account in accounts):
        rate_ps = sum(part["rate_ps"] or 0.0 for part in gateways)
        whole = {"schema": SCHEMA, "window_s": window_s, "requests": round(rate_ps * window_s), "rate_ps": rate_ps}
        return whole | {"drifts": _drifts(accounts, None), "gateways": gateways}
    try:
        rows = [_rows(account) for account in accounts]
        every = sorted((row for part in rows for row in part if row.at_s >= -window_s), key=_arrival)
        document = Seen(tuple(every), -window_s, 0.0).document(0, [], rows=True)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:  # prompts without a token, or without a bound
        raise LoadgenError(f"observed traffic: not as {SCHEMA} has it ({error})") from None
    arrivals = [sorted(row.at_s for row in part) for part in rows]
    return document | {"drifts": _drifts(accounts, arrivals), "gateways": gateways}


def _part(account: Mapping[str, Any]) -> dict[str, Any]:
    """Of one gateway in the whole, over its own window."""
    who, window_s, requests = Who.of(account), account["window_s"], account["requests"]
    rate_ps = round(requests / window_s, 4) if window_s > 0 else None
    return {"id": who.id, "version": who.version, "window_s": window_s, "requests": requests, "rate_ps": rate_ps}


def _drifts(accounts: Sequence[Mapping[str, Any]], arrivals: Sequence[Sequence[float]] | None) -> dict[str, Any]:
    """Each gateway counts its own events; the newest last. What came since one came to all of them: counted where there are
    `arrivals`, else by the others' rates."""
    told = []
    for mine, account in enumerate(accounts):
        for event in account["drifts"]["newest"]:
            since, age_s = event["requests_since"], event["age_s"]
            for other, part in enumerate(accounts):
                if other != mine:
                    since += _since(part, age_s) if arrivals is None else _after(arrivals[other], -age_s)
            told.append(dict(event) | {"requests_since": since, "gateway": Who.of(account).id})
    counts = {Who.of(account).id: account["drifts"]["count"] for account in accounts}
    told.sort(key=lambda event: -event["age_s"])
    return {"count": sum(counts.values()), "counts": counts, "newest": told}


def _since(account: Mapping[str, Any], age_s: float) -> int:
    whole_s = account["window_s"]
    return round(account["requests"] * min(1.0, age_s / whole_s)) if whole_s > 0 else 0


def _after(arrivals: Sequence[float], at_s: float) -> int:
    return len(arrivals) - bisect_left(arrivals, at_s)


def _rows(account: Mapping[str, Any]) -> list[Asked]:
    columns = list(account["columns"])
    return [_asked(dict(zip(columns, row, strict=True))) for row in account["rows"]]


def _asked(row: Mapping[str, Any]) -> Asked:
    if not _number(row["age_s"]):
        raise ValueError(f"an age of {row['age_s']!r}")
    return Asked(
        -float(row["age_s"]),
        str(row["class"]),
        int(row["prompt"]),
        int(row["cached"]),
        int(row["output"]),
        Known(row["known"]),
        int(row["expected"]),
    )


def _arrival(row: Asked) -> float:
    return row.at_s


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST
