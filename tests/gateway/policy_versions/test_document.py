"""The policy as a document: every problem named, versions told apart, what a canary can show."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.policy_config import PolicyConfig
from gateway.policy_versions.coverage import coverage
from gateway.policy_versions.document import WrongPolicyError, differences, digest, plain, policy_of
from tandem.policy_document import SCHEMA, load_policy, schema_text


def policy(**settings: Any) -> PolicyConfig:
    return policy_of(settings)


def test_every_problem_is_named_with_its_path() -> None:
    wrong = {"version": "a b", "strech": 2, "classes": {"chat": {"ttft_s": -1, "on_overrun": ["cap"]}}, "stretch": 0.5}
    with pytest.raises(WrongPolicyError) as caught:
        policy_of(wrong)
    said = " | ".join(caught.value.problems)
    assert len(caught.value.problems) == 4
    for part in ("version:", "strech: unknown key", "classes.chat.ttft_s:", "stretch:"):
        assert part in said


@pytest.mark.parametrize("wrong", [None, [], "x", 3, {"lengths": {"prior": [[0.5, 3], [0.1, 2]]}}])
def test_what_is_no_policy_is_said_to_be_none(wrong: Any) -> None:
    with pytest.raises(WrongPolicyError):
        policy_of(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"output_weight": float("inf")},
        {"tenants": {"a": {"weight": float("inf")}}},
        {"prompt_weight": 1e308},
        {"output_weight": 1e308},
        {"others": {"weight": 1e-308}},
        {"classes": {"a": {"weight": 1e-308}}},
        {"stretch": 1e308},
        {"lengths": {"prior": [[0, 1], [1, float("nan")]]}},
        {"lengths": {"half_life_observations": 1e-6}},
        {"early_rejection": {"retry_min_s": 100}},
    ],
)
def test_numbers_that_no_account_survives_are_refused_where_they_are_written(wrong: Any) -> None:
    """Infinite service made every counter NaN, a half-life below one answer overflowed at its first, and a history with
    either kept the gateway from starting again."""
    with pytest.raises(ValidationError):
        PolicyConfig.model_validate(wrong)


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[2J", "a" * 65])
def test_a_class_has_a_name_that_can_be_shown(name: str) -> None:
    with pytest.raises(WrongPolicyError, match="printable"):
        policy_of({"classes": {name: {}}})


def test_what_is_written_out_makes_no_other_policy_but_the_order_of_classes_does() -> None:
    one = policy(classes={"a": {"tenants": ["t"]}, "b": {}})
    assert digest(policy_of(json.loads(json.dumps(plain(one))))) == digest(one)
    other = policy(classes={"b": {}, "a": {"tenants": ["t"]}})
    assert digest(other) != digest(one)
    assert other.name != one.name
    assert [each.path for each in differences(one, other)] == ["classes"]


def test_differences_name_what_was_added_and_what_it_sets() -> None:
    found = differences(policy(stretch=2), policy(classes={"chat": {"weight": 3}}, version="x"))
    assert [(each.path, each.before, each.after) for each in found] == [
        ("classes.chat", None, "present"),
        ("classes.chat.weight", 1.0, 3.0),
        ("stretch", 2.0, 1.0),
    ]
    assert differences(policy(version="a"), policy(version="b")) == ()


def test_a_section_may_be_set_changed_and_left_out_again() -> None:
    """`balance` is the one that may be absent: applying it answered 500."""
    absent, one, other = policy(), policy(balance={"above": 0.8}), policy(balance={"above": 0.9})
    section = plain(one)["balance"]
    assert [(d.path, d.before, d.after) for d in differences(absent, one)] == [("balance", None, section)]
    assert [(d.path, d.before, d.after) for d in differences(one, absent)] == [("balance", section, None)]
    assert [(d.path, d.before, d.after) for d in differences(one, other)] == [("balance.above", 0.8, 0.9)]
    assert differences(one, one) == differences(absent, absent) == ()
    assert coverage(absent, one).not_tried == ("balance",)


def test_a_canary_covers_what_is_decided_for_one_request_alone() -> None:
    other = policy(
        rule="declared",
        classes={"chat": {"ttft_s": 1, "weight": 2}},
        others={"concurrent": 3},
        early_rejection={"decode": True},
        lengths={"headroom": True, "half_life_s": 60},
    )
    found = coverage(policy(), other)
    assert set(found.tried) == {
        "rule",
        "classes.chat",
        "classes.chat.ttft_s",
        "early_rejection.decode",
        "lengths.headroom",
    }
    assert set(found.not_tried) == {"classes.chat.weight", "others.concurrent", "lengths.half_life_s"}


def test_the_published_schema_is_that_of_the_model() -> None:
    assert SCHEMA.read_text() == schema_text(), "run `python -m tandem.policy_document`"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.yaml", "version: blue\nstretch: 2\n"),
        ("p.toml", 'version = "blue"\nstretch = 2\n'),
        ("p.json", '{"version": "blue", "stretch": 2}'),
        ("layout.yaml", "version: 1\ngateway: {policy: {version: blue, stretch: 2}}\n"),
    ],
)
def test_a_policy_is_read_from_any_form(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert load_policy(tmp_path / name) == policy(version="blue", stretch=2)
