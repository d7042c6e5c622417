"""Side by side: what is counted of each version, what a guard makes of it, what a scrape sees."""

from typing import Any

import pytest

from gateway.policy_versions.collector import VersionCollector
from gateway.policy_versions.document import policy_of
from gateway.policy_versions.guard import Guard
from gateway.policy_versions.outcomes import Account, Outcomes, OutcomeWatch
from gateway.policy_versions.versions import Versions
from gateway.request.errors import Reason
from gateway.request.phase import Phase
from gateway.request.record import Record


def record(policy: str, phase: Phase = Phase.DONE, ttft_s: float = 0.2, tokens: int = 11, **more: Any) -> Record:
    """Admitted, and answered with one token each 10 ms after the first, unless it was refused."""
    one = Record("r", "m", "", 10, 1, 100.0, policy=policy, estimated_tokens=20.0)
    one.enter(Phase.QUEUED, 100.0)
    if phase is not Phase.REJECTED:
        one.enter(Phase.RESERVED, 100.05)
        one.first_token_s, one.last_token_s = 100.0 + ttft_s, 100.0 + ttft_s + 0.01 * (tokens - 1)
        one.completion_tokens = tokens
    else:
        one.reason = Reason.TTFT_UNREACHABLE
    one.enter(phase, 101.0)
    for name, value in more.items():
        setattr(one, name, value)
    return one


def test_each_version_has_its_own_account() -> None:
    outcomes = Outcomes()
    for _ in range(3):
        outcomes.add(record("a"))
    outcomes.add(record("b", Phase.REJECTED))
    outcomes.add(record("b", Phase.FAILED, reason=Reason.WORKER_LOST))
    outcomes.add(record("b", Phase.CANCELLED))
    a, b = outcomes.of("a").document(), outcomes.of("b").document()
    assert (a["requests"], a["admitted"], a["completed"], a["refused"]) == (3, 3, 3, {})
    assert a["ttft_s"] == {"p50": 0.2, "p90": 0.2, "p99": 0.2}
    assert a["tpot_s"]["p50"] == pytest.approx(0.01)
    assert a["queue_s"]["p50"] == pytest.approx(0.05)
    assert (a["estimated_to_realised"], a["estimate_error"]) == (
        pytest.approx(20 / 11, abs=1e-3),
        pytest.approx(9 / 11, abs=1e-3),
    )
    assert (b["admitted"], b["refused"], b["failed"], b["abandoned"]) == (
        2,
        {"ttft_unreachable": 1},
        {"worker_lost": 1},
        1,
    )


def test_only_the_latest_versions_are_counted_and_labelled() -> None:
    outcomes = Outcomes(most=2)
    for version in ("a", "b", "a", "c"):
        outcomes.add(record(version))
    assert [version for version, _ in outcomes] == ["a", "c"]
    samples = [sample for family in VersionCollector(outcomes).collect() for sample in family.samples]
    assert {sample.labels["policy"] for sample in samples} == {"a", "c"}
    done = [
        s.value
        for s in samples
        if s.name == "tandem_policy_requests_total" and s.labels == {"policy": "a", "outcome": "done"}
    ]
    assert done == [2.0]


def account(requests: int, refused: int = 0, ttft_s: float = 0.1) -> Account:
    made = Account()
    for at in range(requests):
        made.add(record("x", Phase.REJECTED if at < refused else Phase.DONE, ttft_s))
    return made


@pytest.mark.parametrize(
    ("guard", "in_force", "canary", "said"),
    [
        (Guard(), account(50), account(50, 50), ""),
        (Guard(refused=0.1, least=20), account(19), account(50, 50), ""),
        (Guard(refused=0.1, least=20), account(50), account(19, 19), ""),
        (Guard(refused=0.1, least=20), account(50, 5), account(50, 9), ""),
        (Guard(refused=0.1, least=20), account(50, 5), account(50, 11), "22.0% of its requests"),
        (Guard(ttft=1.5, least=20), account(50), account(50, 0, 0.14), ""),
        (Guard(ttft=1.5, least=20), account(50), account(50, 0, 0.16), "160 ms"),
        (Guard(ttft=1.5, least=20), account(50, 50), account(50, 0, 9.0), ""),
    ],
)
def test_a_guard_objects_to_what_was_declared(guard: Guard, in_force: Account, canary: Account, said: str) -> None:
    found = guard.objection(in_force, canary)
    assert (said in found) if said else found == ""


def test_a_canary_that_refuses_too_much_ends_by_itself() -> None:
    watch = OutcomeWatch()
    versions = Versions(policy_of({"version": "base"}), watch=watch)
    versions.try_out({"version": "c", "rule": "declared"}, 0.5, "ops", "", Guard(refused=0.2, least=20))
    for at in range(30):
        watch.ended(record("base"))
        assert (versions.trial is None) == (at >= 20), at
        watch.ended(record("c", Phase.REJECTED if at % 2 else Phase.DONE))
    last = list(versions.history)[-1]
    assert (last.action.value, last.by, last.version) == ("canary ended", "guard", "c")
    assert last.note == "it refused or failed 50.0% of its requests, the version in force 0.0%"
    assert versions.version == "base"


def test_a_canary_that_does_well_goes_on() -> None:
    watch = OutcomeWatch()
    versions = Versions(policy_of({"version": "base"}), watch=watch)
    versions.try_out({"version": "c", "rule": "declared"}, 0.5, "", "", Guard(refused=0.0, ttft=1.0, least=5))
    for _ in range(60):
        watch.ended(record("base"))
        watch.ended(record("c"))
    assert versions.trial is not None
    assert versions.compared()["c"].completed == 60


def test_requests_that_no_policy_decided_are_nobodys() -> None:
    watch = OutcomeWatch()
    watch.ended(record(""))
    assert list(watch.ever) == []
