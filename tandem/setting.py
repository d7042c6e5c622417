"""One setting by its path, as `--set KEY=VALUE` gives it. Null takes back what weaker layers say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from tandem.config_error import section_in


@dataclass(frozen=True, slots=True)
class Setting:
    path: tuple[str, ...]
    value: Any

    @property
    def nested(self) -> dict[str, Any]:
        """As a document that says nothing else."""
        value = self.value
        for part in reversed(self.path):
            value = {part: value}
        document: dict[str, Any] = value
        return document


def applied(document: Mapping[str, Any], setting: Setting, model: type[BaseModel]) -> dict[str, Any]:
    """The document with the setting. A null is a value where the key takes it and has another default; everywhere else the
    key goes, which leaves its default. A key of a map, such as a tenant's, is no longer in it."""
    if setting.value is None and not _is_value(setting.path, model):
        return _without(document, setting.path)
    return deep_update(document, setting.nested)


def deep_update(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = deep_update(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _without(document: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    first, *rest = path
    left = dict(document)
    if not rest:
        left.pop(first, None)
    elif isinstance(inner := left.get(first), Mapping):
        left[first] = _without(inner, rest)
    return left


def _is_value(path: Sequence[str], model: type[BaseModel]) -> bool:
    """Of keys that do not exist too: the check of the whole document names them."""
    here: type[BaseModel] | None = model
    named = False  # the next part is a name of the operator's own, in a map
    annotation, default = None, None
    for part in path:
        if named:
            named, annotation = False, None
            continue
        if here is None or part not in here.model_fields:
            return True
        field = here.model_fields[part]
        annotation, default = field.annotation, field.get_default(call_default_factory=True, validated_data={})
        here = section_in(annotation)
        named = get_origin(annotation) is dict
    return type(None) in get_args(annotation) and default is not None
