"""A policy as a document: read with every problem named, compared with another, digested. Pure."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from gateway.policy.control.controller import Controller
from gateway.policy_config import ClassPolicy, PolicyConfig, TenantPolicy

#: Largest policy that is taken, in bytes of JSON.
MAX_POLICY_BYTES = 256 * 1024


#: Sections whose keys are names, and what an entry is that sets nothing.
_NAMED: Mapping[str, BaseModel] = {"classes": ClassPolicy(), "tenants": TenantPolicy()}


class WrongPolicyError(Exception):
    """The document is no policy; `problems` are lines for a person, one each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting, by its dotted path. None where one side has no such entry."""

    path: str
    before: Any
    after: Any


def policy_of(document: Any) -> PolicyConfig:
    """Raises WrongPolicyError with every problem of `document`."""
    if not isinstance(document, Mapping):
        raise WrongPolicyError(f"a policy is a mapping of settings, not {type(document).__name__}")
    try:
        policy = PolicyConfig.model_validate(document)
    except ValidationError as error:
        raise WrongPolicyError(*map(_line, error.errors())) from None
    try:
        Controller(policy, lambda: 0.0)  # what no field can say by itself shows here, before anything is touched
    except ValueError as error:
        raise WrongPolicyError(str(error)) from None
    return policy


def digest(policy: PolicyConfig) -> str:
    """Equal for equal policies, whatever was written out or left as it is. The order of classes counts: the first that
    a request matches is its own."""
    return hashlib.sha256(json.dumps(plain(policy)).encode()).hexdigest()


def plain(policy: PolicyConfig) -> dict[str, Any]:
    """All settings, as JSON values."""
    return policy.model_dump(mode="json")


def differences(before: PolicyConfig, after: PolicyConfig) -> tuple[Difference, ...]:
    """In the order of the model, the name of the version left out. A class or tenant of one side only is itself a
    difference, and so is what it sets beside the defaults."""
    old, new = plain(before), plain(after)
    del old["version"], new["version"]
    found: list[Difference] = []
    order, reordered = list(old["classes"]), list(new["classes"])
    if order != reordered and sorted(order) == sorted(reordered):
        found.append(Difference("classes", order, reordered))
    for section, default in _NAMED.items():
        for name in dict.fromkeys([*old[section], *new[section]]):
            for other, ends in ((new, ("present", None)), (old, (None, "present"))):
                if name not in other[section]:
                    other[section][name] = default.model_dump(mode="json")
                    found.append(Difference(f"{section}.{name}", *ends))
    return (*found, *_changed(old, new))


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[Difference]:
    """A section that one side leaves out is one difference, with all that the other sets in it."""
    for key, before in old.items():
        after = new[key]
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _changed(before, after, f"{prefix}{key}.")
        elif before != after:
            yield Difference(f"{prefix}{key}", before, after)


def _line(error: Any) -> str:
    path = ".".join(str(part) for part in error["loc"]) or "policy"
    if error["type"] == "extra_forbidden":
        return f"{path}: unknown key"
    message = error["msg"].removeprefix("Value error, ")
    given = error.get("input")
    shown = f", not {given!r}" if isinstance(given, str | int | float | bool) else ""
    return f"{path}: {message[:1].lower()}{message[1:]}{shown}"
