"""Accounts of several gateways as one: rates add up, and lengths are those of all requests (R-63)."""

from math import inf
from typing import Any

import pytest

from gateway.observe.traffic import Traffic
from gateway.request.phase import Phase
from gateway.request.record import Record
from loadgen.failure import LoadgenError
from loadgen.plan.accounts import Identities, OneFleetError, checked, merged, one_fleet
from loadgen.workload.observed import Observed

LENGTHS = {"mean": 9.0, "p50": 9, "p90": 9, "p99": 9}
CHAT = {"requests": 3, "cached_share": 0.0, "prompt": LENGTHS, "output": LENGTHS}
EVENT = {"number": 1, "age_s": 10.0, "requests_since": 20, "change": "longer", "class": ["m"], "answers": 9}


def account(
    name: str,
    count: int,
    gap_s: float,
    *,
    began_s: float = 0.0,
    end_s: float = 100.0,
    output: int = 10,
    rows: bool = True,
) -> dict[str, Any]:
    """As a gateway writes it: requests every `gap_s` until the end."""
    traffic = Traffic(10_000, began_s)
    for number in range(count):
        made = Record("id", "m", "acme", prompt_tokens=500, choices=1, started_s=end_s - number * gap_s, klass="chat")
        made.phase, made.completion_tokens = Phase.DONE, output
        traffic.ended(made)
    document: dict[str, Any] = traffic.seen([], end_s).document(0, [], rows=rows)
    return document | {"gateway": {"id": name, "version": "1", "model": "m"}}


def test_rates_add_up_and_lengths_are_those_of_all_requests() -> None:
    whole = merged([account("a", 300, 0.25, output=10), account("b", 100, 0.5, output=90)])
    assert (whole["window_s"], whole["requests"], whole["rate_ps"]) == (100.0, 400, 4.0)
    assert whole["classes"]["chat"]["output"]["mean"] == 30.0
    assert [part["rate_ps"] for part in whole["gateways"]] == [3.0, 1.0]
    observed = Observed.of(whole, within_s=10.0)
    assert len(observed.rows) == 41 + 21
    assert [row.at_s for row in observed.rows] == sorted(row.at_s or 0.0 for row in observed.rows)


def test_only_the_time_that_all_of_them_know_counts() -> None:
    """One that was started 20 s ago has told nothing of the time before: the rate of then would look like half of it."""
    young = account("b", 40, 0.5, began_s=80.0)
    whole = merged([account("a", 200, 0.5), young])
    assert (whole["window_s"], whole["requests"]) == (20.0, 41 + 40)
    assert whole["rate_ps"] == pytest.approx(4.0, rel=0.02)


def test_without_rows_there_is_what_a_watch_asks_for() -> None:
    whole = merged([account("a", 200, 0.5, rows=False), account("b", 40, 0.5, began_s=80.0, rows=False)])
    assert (whole["window_s"], whole["requests"]) == (20.0, 80)
    assert "classes" not in whole


@pytest.mark.parametrize("rows", [True, False])
def test_what_came_since_a_drift_came_to_all_of_them(rows: bool) -> None:
    one, other = account("a", 200, 0.5, rows=rows), account("b", 400, 0.25, rows=rows)
    one["drifts"] = {"count": 3, "newest": [EVENT | {"number": 3}]}
    other["drifts"] = {"count": 1, "newest": [EVENT | {"age_s": 30.0}]}
    drifts = merged([one, other])["drifts"]
    assert (drifts["count"], drifts["counts"]) == (4, {"a": 3, "b": 1})
    assert [event["gateway"] for event in drifts["newest"]] == ["b", "a"]
    assert [event["requests_since"] for event in drifts["newest"]] == pytest.approx([20 + 60, 20 + 40], abs=1)


def test_one_gateway_stays_as_it_told() -> None:
    alone = account("a", 20, 1.0)
    whole = merged([alone])
    assert {key: whole[key] for key in alone if key != "drifts"} == {k: v for k, v in alone.items() if k != "drifts"}
    assert whole["drifts"] == {"count": 0, "counts": {"a": 0}, "newest": []}


@pytest.mark.parametrize(
    "row",
    [
        ["soon", "chat", 500, 0, 10, "done", 10],
        [1.0, "other", 0, 0, 10, "done", 10],  # all prompts of its class have no token
        [1.0, "chat", 10**400, 0, 10, "done", 10],
    ],
)
def test_rows_that_are_none_are_refused_in_one_line(row: list[Any]) -> None:
    broken = account("b", 20, 1.0)
    broken["rows"][0] = row
    with pytest.raises(LoadgenError, match="not as tandem-traffic/1 has it"):
        merged([account("a", 20, 1.0), broken])


def told(**who: str) -> dict[str, Any]:
    return {"gateway": {"id": "a", "version": "1", "model": "m"} | who}


@pytest.mark.parametrize(
    ("other", "kind", "said"),
    [
        (told(), OneFleetError, "x and y are one gateway, a: name each once, and no load balancer"),
        (told(id="b", model="n"), OneFleetError, "x serves m, y n: .* watch each alone"),
        (told(id="b", version="2"), LoadgenError, "x runs tandem 1, y tandem 2: bring them to one version"),
        ({}, LoadgenError, "y does not say which gateway it is, .*: upgrade it, or watch it alone"),
    ],
)
def test_what_is_no_fleet_is_one_line_with_the_fix(other: dict[str, Any], kind: type[LoadgenError], said: str) -> None:
    with pytest.raises(kind, match=said):
        one_fleet({"x": told(), "y": other})
    one_fleet({"y": other})  # alone it needs to be nobody's like
    one_fleet({"x": told(), "z": told(id="z", model="")})  # no worker has joined it yet


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "what answers at x tells no traffic; name a gateway with --endpoint"),
        ({"object": "list"}, "tells no traffic"),
        ({"schema": "tandem-traffic/9"}, "not a tandem-traffic/1 document.*use the tandem of that gateway's version"),
        ({"schema": "tandem-traffic/1"}, "not as tandem-traffic/1 has it .*is it a gateway"),
        (account("a", 3, 1.0) | {"window_s": "long"}, "not as tandem-traffic/1"),
        (account("a", 3, 1.0) | {"drifts": {"count": 1, "newest": [{"number": 1}]}}, "not as tandem-traffic/1"),
        (account("a", 3, 1.0) | {"drifts": {"count": 1, "newest": 7}}, "not as tandem-traffic/1"),
        (
            account("a", 3, 1.0) | {"drifts": {"count": 1, "newest": [EVENT | {"class": [[]]}]}},
            "not as tandem-traffic/1",
        ),
        (
            account("a", 3, 1.0) | {"drifts": {"count": 1, "newest": [EVENT | {"age_s": inf}]}},
            "not as tandem-traffic/1",
        ),
        (account("a", 3, 1.0) | {"requests": 10**400}, "not as tandem-traffic/1"),
        (account("a", 3, 1.0) | {"rate_ps": "fast"}, "not as tandem-traffic/1"),
        (account("a", 3, 1.0) | {"known": []}, "not as tandem-traffic/1"),
        (account("a", 3, 1.0) | {"classes": ["chat"]}, "not as tandem-traffic/1"),
        (account("a", 3, 1.0) | {"classes": {"chat": {"requests": 3}}}, "not as tandem-traffic/1"),
        (
            account("a", 3, 1.0) | {"classes": {"chat": CHAT | {"prompt": LENGTHS | {"p90": {}}}}},
            "not as tandem-traffic/1",
        ),
    ],
)
def test_what_is_no_account_is_named_by_where_it_was_asked(document: Any, said: str) -> None:
    with pytest.raises(LoadgenError, match=said):
        checked("x", document)
    assert checked("x", account("a", 3, 1.0))["requests"] == 3
    sound = account("a", 3, 1.0) | {"classes": {"chat": CHAT}, "drifts": {"count": 1, "newest": [EVENT]}}
    assert checked("x", sound) == sound


def test_a_load_balancer_is_told_from_a_gateway_that_was_started_anew() -> None:
    known = Identities()
    for name in ("a", "a", "b", "b", "c"):
        known.see({"x": told(id=name), "y": told(id="z")})
    with pytest.raises(OneFleetError, match=r"x is answered by c and b in turn, .*: name each gateway itself"):
        known.see({"x": told(id="b")})
