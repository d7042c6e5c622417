"""A policy in a file: by itself, or as the `gateway.policy` section of a whole configuration."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.policy_config import PolicyConfig
from gateway.policy_versions.document import WrongPolicyError, policy_of
from tandem.config_error import ConfigError, Layer, explain
from tandem.document import read_document

SCHEMA = Path(__file__).resolve().parents[1] / "docs" / "schemas" / "policy-1.json"


def load_policy(file: Path) -> PolicyConfig:
    """Raises ConfigError naming every problem and the file."""
    values = _section(file, read_document(file))
    try:
        PolicyConfig.model_validate(values)
    except ValidationError as e:
        raise ConfigError(explain(e, PolicyConfig, [Layer(str(file), values)])) from e
    try:
        return policy_of(values)
    except WrongPolicyError as e:
        raise ConfigError([f"{problem} (set by {file})" for problem in e.problems]) from e


def schema() -> dict[str, Any]:
    """The JSON schema of the document, made from the model."""
    made = PolicyConfig.model_json_schema()
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tandem policy, version 1",
        "description": "Who is let in, in which order, and what is promised (docs/policy.md).",
    }
    return head | {key: value for key, value in made.items() if key not in head}


def schema_text() -> str:
    return json.dumps(schema(), indent=2) + "\n"


def _section(file: Path, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A policy has no key `gateway`, so there is no doubt what is meant."""
    if "gateway" in values:
        gateway = values["gateway"]
        found = gateway.get("policy") if isinstance(gateway, Mapping) else None
        if not isinstance(found, Mapping):
            raise ConfigError([f"{file}: it is a configuration without a section gateway.policy"])
        return found
    if not values:
        raise ConfigError([f"{file}: the document is empty; write `version: NAME` to mean the defaults"])
    return values


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
