"""A document of settings in a file: YAML, of which JSON is a part, or TOML."""

import tomllib
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from tandem.config_error import ConfigError

_MERGE = "tag:yaml.org,2002:merge"


def read_document(file: Path) -> dict[str, Any]:
    """A mapping. Raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as e:
        raise ConfigError([f"cannot read {file}: {e.strerror}"]) from e
    except UnicodeDecodeError as e:
        raise ConfigError([f"cannot read {file}: it is not UTF-8 text"]) from e
    kind = "TOML" if is_toml(file) else "YAML"
    try:
        values = tomllib.loads(text) if is_toml(file) else yaml.load(text, _Loader)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as e:
        raise ConfigError([f"{file} is not valid {kind}: {' '.join(str(e).split())}"]) from e
    except RecursionError:
        raise ConfigError([f"{file} is not valid {kind}: it is nested too deeply"]) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError([f"{file}: the document must be a mapping of sections, not {type(values).__name__}"])
    return values


def is_toml(file: Path) -> bool:
    return file.suffix == ".toml"


class _Loader(yaml.SafeLoader):
    """Of a key that is there twice the last would count, without a word; and a key that is no text, such as 1 or yes, has
    no meaning in any section."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set[str]()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.tag == _MERGE:
                continue
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str):
                raise ConstructorError(None, None, f"the key {key.value} is no text; put it in quotes", key.start_mark)
            if name in seen:
                raise ConstructorError(None, None, f"the key {name} is there twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)
