"""Text of others on an operator's terminal: what would move the cursor, make a line up or clear the screen is shown, not done."""

from collections.abc import Mapping
from typing import Any


def printable(text: str) -> str:
    return text if text.isprintable() else "".join(char if char.isprintable() else _shown(char) for char in text)


def printable_document(value: Any) -> Any:
    """A JSON value with all its texts, keys included."""
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {printable_document(key): printable_document(item) for key, item in value.items()}
        case list():
            return [printable_document(item) for item in value]
    return value


def _shown(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
