"""The JSON of one tool call, read while it is being written."""

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

_TURNS = re.compile(r'["\\{}\[\]]')


class NoCallError(Exception):
    """What is there cannot be the beginning of a call in the usual order."""


class _ShortError(Exception):
    """It can, and more is needed to know."""


@dataclass(frozen=True, slots=True)
class Header:
    """The name of the function, and where its arguments begin."""

    name: str
    end: int


def header(text: str, names: Collection[str]) -> Header | None:
    """Reads `{"name": "…", "arguments": {`, the name first, as models are trained to write it; some say `parameters`.

    None while more of it is needed. Decided as soon as one character rules it out.
    """
    walk = _Walk(text)
    try:
        walk.expect(["{"])
        walk.expect(['"name"'])
        walk.expect([":"])
        name = walk.expect([f'"{name}"' for name in names])
        walk.expect([","])
        walk.expect(['"arguments"', '"parameters"'])
        walk.expect([":"])
        walk.expect(["{"])
    except _ShortError:
        return None
    return Header(name[1:-1], walk.at - 1)


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def expect(self, options: Iterable[str]) -> str:
        rest = self._text[self.at :].lstrip()
        self.at = len(self._text) - len(rest)
        for option in options:
            if rest.startswith(option):
                self.at += len(option)
                return option
        if any(option.startswith(rest) for option in options):
            raise _ShortError
        raise NoCallError


def whole(text: str, names: Collection[str]) -> tuple[str, str] | None:
    """Name and arguments of a call that is complete, in any order of its keys; None when it is none.

    Also one without arguments, and one whose arguments are a string of JSON.
    """
    call = _loaded(text)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or call["name"] not in names:
        return None
    arguments = call.get("arguments", call.get("parameters"))
    if arguments is None:
        arguments = {}
    told = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    known = _loaded(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(known, dict):
        return None
    return call["name"], told if is_text(told) else json.dumps(known)


def is_text(text: str) -> bool:
    """JSON can name half of a surrogate pair, of which only the escape can be sent on."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


class Braces:
    """Finds the end of a JSON object or list, and reads no further."""

    __slots__ = ("_depth", "_escaped", "_quoted")

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def end(self, text: str) -> int:
        """Where it ends in `text`, which goes on from the text before; -1 while it does not."""
        at = 0
        if self._escaped and text:
            at, self._escaped = 1, False
        while turn := _TURNS.search(text, at):
            at = turn.end()
            match turn[0]:
                case "\\":
                    if self._quoted:
                        self._escaped = at == len(text)
                        at += 1
                case '"':
                    self._quoted = not self._quoted
                case _ if self._quoted:
                    pass
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth <= 0:
                        return at
        return -1
