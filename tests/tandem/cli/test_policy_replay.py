"""What a replay takes from a running gateway, and what it says that it leaves out."""

from typing import Any

import pytest

from gateway.policy_config import PolicyConfig
from tandem.cli import policy_replay


@pytest.mark.parametrize("fluid", [True, False])
def test_fluid_roles_that_are_not_replayed_are_said(monkeypatch: pytest.MonkeyPatch, fluid: bool) -> None:
    workers = [{"role": "both", "tp": 1, "engine_version": "1 (toy)"}]
    status = {"workers": workers, "policy": {"roles": {"ways": {}} if fluid else None}}
    replies: list[dict[str, Any]] = [status, {"settings": PolicyConfig().model_dump(mode="json")}]
    monkeypatch.setattr(policy_replay, "at_one", lambda *_: replies.pop(0))
    words, in_force, left_out = policy_replay._fleet("", "", "http://here", "")
    assert words == "--profile toy --colocated 1 --colocated-tp 1"
    assert in_force == PolicyConfig()
    assert [("--fluid" in note) for note in left_out] == [True] * fluid


def test_a_layout_that_was_given_leaves_nothing_out() -> None:
    assert policy_replay._fleet("sim:--colocated 2", "", "", "") == ("--colocated 2", None, [])
