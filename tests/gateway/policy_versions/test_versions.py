"""Changes of the policy: whole or not at all, in a history that outlives the process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.policy_config import PolicyConfig
from gateway.policy_versions.document import WrongPolicyError, policy_of
from gateway.policy_versions.history import Action, History, HistoryError
from gateway.policy_versions.versions import ConflictError, Versions


class Seen:
    """A follower that keeps an account of what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def adopt(self, config: PolicyConfig) -> None:
        self.told.append(config.name)

    def try_out(self, config: PolicyConfig | None, share: float = 0.0) -> None:
        self.told.append(f"{share:g} {config.name}" if config else "end")


def doc(name: str, **settings: Any) -> dict[str, Any]:
    return {"version": name, **settings}


def versions(
    file: Path | None = None, configured: Any = None, follower: Seen | None = None, most: int = 64
) -> Versions:
    ticks = iter(range(1000))
    history = History(file, most)
    return Versions(
        policy_of(configured or doc("base")),
        follower or Seen(),
        history,
        now=lambda: f"2026-01-01T00:00:{next(ticks):02}Z",
    )


def told(one: Versions) -> list[tuple[str, str]]:
    return [(change.action.value, change.version) for change in one.history]


def test_apply_and_roll_back() -> None:
    seen = Seen()
    one = versions(follower=seen)
    changed = one.apply(doc("a", stretch=2), "ops", "why")
    assert (changed.before, changed.after, len(changed.differences)) == ("base", "a", 1)
    one.apply(doc("b", stretch=3), "ops", "")
    assert one.roll_back("", "ops", "").after == "a"
    assert one.roll_back("base", "ops", "").after == "base"
    assert one.roll_back("a", "", "").after == "a"
    assert seen.told == ["a", "b", "a", "base", "a"]
    assert one.version == "a"
    last = list(one.history)[1]
    assert (last.by, last.note, last.settings["stretch"]) == ("ops", "why", 2.0)


def test_rolled_back_again_goes_further_back_and_never_to_what_was_taken_away(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    one = versions(file)
    for stretch, name in enumerate("abc", 2):
        one.apply(doc(name, stretch=stretch), "", "")
    assert one.roll_back("", "", "").after == "b"
    one = versions(file)  # what was rolled back is known over a restart
    assert [one.roll_back("", "", "").after for _ in range(2)] == ["a", "base"]
    with pytest.raises(ConflictError, match="before base; to go to another, name it; the history has: base, a, b, c"):
        one.roll_back("", "", "")
    one.apply(doc("d", stretch=9), "", "")
    assert one.roll_back("", "", "").after == "base"
    one.roll_back("c", "", "")  # by name any, and from there back to where one was
    assert one.roll_back("", "", "").after == "base"


def test_what_is_in_force_already_changes_nothing() -> None:
    seen = Seen()
    one = versions(follower=seen)
    assert one.apply(doc("base"), "", "").differences == ()
    assert seen.told == []
    assert len(one.history) == 1


def test_one_name_means_one_policy() -> None:
    one = versions()
    one.apply(doc("a", stretch=2), "", "")
    with pytest.raises(WrongPolicyError, match="a is the name of another policy"):
        one.apply(doc("a", stretch=3), "", "")
    with pytest.raises(WrongPolicyError):
        one.try_out(doc("a", rule="declared"), 0.5, "", "")
    assert one.policy.stretch == 2


@pytest.mark.parametrize(
    "order",
    [
        lambda one: one.roll_back("", "", ""),
        lambda one: one.roll_back("nobody", "", ""),
        lambda one: one.promote("", ""),
        lambda one: one.abort("", ""),
        lambda one: one.compared(),
        lambda one: one.try_out(doc("x", stretch=2), 0.1, "", ""),
        lambda one: one.apply({"stretch": 0}, "", ""),
    ],
)
def test_what_cannot_be_leaves_everything_as_it_was(order: Callable[[Versions], Any]) -> None:
    seen = Seen()
    one = versions(follower=seen)
    with pytest.raises((ConflictError, WrongPolicyError)):
        order(one)
    assert (one.version, seen.told, told(one)) == ("base", [], [("configured", "base")])


def test_a_change_that_cannot_be_recorded_is_not_made(tmp_path: Path) -> None:
    seen = Seen()
    file = tmp_path / "history"
    one = versions(file, follower=seen)
    file.unlink()
    file.mkdir()
    for order in (
        lambda: one.apply(doc("a", stretch=2), "", ""),
        lambda: one.try_out(doc("b", rule="declared"), 0.5, "", ""),
    ):
        with pytest.raises(HistoryError, match="cannot be written"):
            order()
    assert (one.version, one.trial, seen.told, len(one.history)) == ("base", None, [], 1)


def test_a_gateway_starts_whether_or_not_its_history_can_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "history").mkdir()
    one = versions(tmp_path / "history")
    assert told(one) == [("configured", "base")]
    assert "cannot be written" in caplog.text
    with pytest.raises(HistoryError):
        one.apply(doc("a", stretch=2), "", "")


def test_a_canary_is_begun_widened_and_promoted() -> None:
    seen = Seen()
    one = versions(follower=seen)
    one.try_out(doc("c", rule="declared"), 0.05, "ops", "")
    with pytest.raises(ConflictError, match="under way"):
        one.apply(doc("d", stretch=2), "", "")
    with pytest.raises(ConflictError, match="under way"):
        one.try_out(doc("d", rule="declared", stretch=2), 0.1, "", "")
    counted = one.watch.trial
    one.try_out(doc("c", rule="declared"), 0.5, "ops", "")
    assert one.watch.trial is counted
    one.promote("ops", "")
    assert (one.version, one.trial, one.watch.trial) == ("c", None, None)
    assert seen.told == ["0.05 c", "0.5 c", "c"]
    assert [action for action, _ in told(one)] == ["configured", "canary started", "canary started", "promoted"]


def test_an_aborted_canary_leaves_the_policy_in_force() -> None:
    seen = Seen()
    one = versions(follower=seen)
    one.try_out(doc("c", rule="declared"), 0.05, "", "")
    one.abort("", "")
    assert (one.version, one.trial, seen.told) == ("base", None, ["0.05 c", "end"])
    assert one.roll_back("c", "", "").after == "c"  # the history knows it


def test_what_was_applied_outlives_the_process(tmp_path: Path) -> None:
    file = tmp_path / "run" / "history.jsonl"
    versions(file).apply(doc("a", stretch=2), "ops", "")
    seen = Seen()
    again = versions(file, follower=seen)
    assert (again.version, again.policy.stretch, seen.told) == ("a", 2.0, ["a"])
    assert told(again) == [("configured", "base"), ("applied", "a")]
    assert again.roll_back("", "", "").after == "base"
    assert versions(file).version == "base"


def test_a_configuration_that_was_changed_since_goes_before_what_was_applied(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    versions(file).apply(doc("a", stretch=2), "ops", "")
    seen = Seen()
    again = versions(file, doc("new", stretch=4), seen)
    assert (again.version, seen.told) == ("new", [])
    assert told(again)[-1] == ("configured", "new")
    assert again.roll_back("", "", "").after == "a"


def test_a_canary_ends_with_the_process(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    versions(file).try_out(doc("c", rule="declared"), 0.05, "", "")
    again = versions(file)
    assert (again.version, again.trial) == ("base", None)
    assert told(again)[-1] == ("canary ended", "c")
    assert told(versions(file)) == told(again)


def test_the_history_is_bounded_and_never_loses_what_is_in_force(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    one = versions(file, most=4)
    one.apply(doc("a", stretch=2), "", "")
    for share in range(1, 20):
        one.try_out(doc("c", stretch=2, rule="declared"), share / 20, "", "")
    assert len(one.history) == 4
    assert len(file.read_bytes().splitlines()) <= 8
    in_force = History(file, 4).in_force
    assert in_force is not None
    assert (in_force.version, in_force.action) == ("a", Action.APPLIED)


def test_a_spoilt_file_does_not_keep_a_gateway_from_starting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "history.jsonl"
    versions(file).apply(doc("a", stretch=2), "", "")
    with file.open("ab") as out:
        out.write(b'{"serial": 3, "at": "x"}\nnot json at all\n{"cut sho')
    again = versions(file)
    assert again.version == "a"
    assert "line 3" in caplog.text
    again.apply(doc("b", stretch=3), "", "")
    assert versions(file).version == "b"
