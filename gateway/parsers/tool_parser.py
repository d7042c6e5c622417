"""How a model writes tool calls of its own accord."""

from collections.abc import Collection
from enum import StrEnum

from gateway.parsers.calls import CallParser
from gateway.parsers.hermes import END, START, Hermes
from gateway.parsers.json_calls import JsonCalls


class ToolParser(StrEnum):
    HERMES = "hermes"
    LLAMA3_JSON = "llama3_json"

    @property
    def marks(self) -> frozenset[str]:
        """What must not be skipped, where the tokenizer calls it special."""
        return frozenset((START, END)) if self is ToolParser.HERMES else frozenset()

    def calls(self, names: Collection[str], *, single: bool) -> CallParser:
        if self is ToolParser.HERMES:
            return Hermes(names, single=single)
        return JsonCalls(names, opening="<|python_tag|>", separators=";,", single=single)


def required_calls(names: Collection[str], *, single: bool) -> CallParser:
    """A list, as `required_schema` asks for it."""
    return JsonCalls(names, opening="[", separators=",", closing="]", single=single)
