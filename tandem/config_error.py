"""Configuration errors that name the key, the layer it came from, and what was probably meant."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError


class ConfigError(Exception):
    """One or more bad settings; `problems` are lines for a person."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)

    @classmethod
    def nested(cls, error: ValidationError, prefix: tuple[str, ...], model: type[BaseModel]) -> "ConfigError":
        return cls([_line(item, prefix, model, ()) for item in error.errors()])


@dataclass(frozen=True, slots=True)
class Layer:
    """Where settings come from, and what they say."""

    name: str
    values: Mapping[str, Any]

    def sets(self, path: Sequence[str | int]) -> bool:
        values: Any = self.values
        for part in path:
            if not isinstance(values, Mapping) or part not in values:
                return False
            values = values[part]
        return True


def explain(error: ValidationError, model: type[BaseModel], layers: Sequence[Layer]) -> list[str]:
    """One line a problem; the strongest layer that sets the key is the one to blame."""
    return [_line(item, (), model, layers) for item in error.errors()]


def misspelt_variables(environ: Mapping[str, str], prefix: str, delimiter: str, model: type[BaseModel]) -> None:
    """A misspelt section would be ignored without a word, since other software may use the prefix too."""
    problems = []
    sections = {name.upper() for name in model.model_fields}
    for variable in environ:
        if not variable.startswith(prefix):
            continue
        section, split, _ = variable.removeprefix(prefix).partition(delimiter)
        if split and section not in sections:
            problems.append(
                f"environment: {variable}: no section {section.lower()!r}{_hint(section.lower(), set(model.model_fields))}"
            )
        elif not split and (name := section.partition("_")[0]) in sections and name != section:
            key = section.removeprefix(name + "_")
            if _is_field(model, name.lower(), key.lower()):
                problems.append(f"environment: {variable}: did you mean {prefix}{name}{delimiter}{key}?")
    if problems:
        raise ConfigError(problems)


def _line(item: Any, prefix: tuple[str, ...], model: type[BaseModel], layers: Sequence[Layer]) -> str:
    path: tuple[str | int, ...] = (*prefix, *item["loc"])
    where = next((f" (set by {layer.name})" for layer in reversed(layers) if layer.sets(path)), "")
    name = ".".join(str(part) for part in path) or "document"
    if item["type"] == "extra_forbidden":
        known = _keys_at(model, item["loc"][:-1])
        return f"{name}: unknown key{_hint(str(item['loc'][-1]), known)}{where}"
    given = item.get("input")
    shown = f", not {given!r}" if isinstance(given, str | int | float | bool) and not _is_secret(model, item) else ""
    if item["type"] == "model_type":
        known = _keys_at(model, item["loc"])
        return f"{name}: is a section with keys of its own{shown}; known: {', '.join(sorted(known))}{where}"
    message = item["msg"].removeprefix("Value error, ")
    return f"{name}: {message[:1].lower()}{message[1:]}{shown}{where}"


def _is_secret(model: type[BaseModel], item: Any) -> bool:
    """Whether what was given stands where a secret, or a map of them, belongs: then no message may quote it."""
    here: type[BaseModel] | None = model
    for part in item["loc"]:
        field = here.model_fields.get(str(part)) if here else None
        if field is None:
            return False
        if "SecretStr" in str(field.annotation):
            return True
        here = section_in(field.annotation)
    return False


def _hint(word: str, known: set[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(sorted(known))}"


def _keys_at(model: type[BaseModel], path: Sequence[str | int]) -> set[str]:
    here: type[BaseModel] | None = model
    names = False  # the next part is a name of the operator's own, in a map of sections
    for part in path:
        if names:
            names = False
            continue
        annotation = here.model_fields[str(part)].annotation if here and str(part) in here.model_fields else None
        here = section_in(annotation)
        names = get_origin(annotation) is dict
    return set(here.model_fields) if here else set()


def _is_field(model: type[BaseModel], section: str, key: str) -> bool:
    return key in _keys_at(model, (section,))


def section_in(annotation: Any) -> type[BaseModel] | None:
    """The model of a key that is a section, or a map of sections."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
