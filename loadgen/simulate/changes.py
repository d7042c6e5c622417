"""What happens to a fleet while it serves: workers die and come back, change roles, are added."""

import re
from dataclasses import dataclass

from loadgen.failure import LoadgenError
from proto.worker import Role

_S = r"\d+(?:\.\d*)?|\.\d+"
_FAILURE = re.compile(rf"(?P<worker>[\w-]+)@(?P<at>{_S}):(?P<down>{_S})")
_ROLE = re.compile(rf"(?P<worker>[\w-]+)=(?P<role>prefill|decode|both)@(?P<at>{_S})")
_ADDITION = re.compile(rf"(?P<role>prefill|decode|colocated|both)=(?P<count>\d+)@(?P<at>{_S})")


@dataclass(frozen=True, slots=True)
class Failure:
    """A worker's engine dies with all it holds, and is back, empty, `down_s` later."""

    worker: str
    at_s: float
    down_s: float


@dataclass(frozen=True, slots=True)
class RoleChange:
    """What runs goes on; new work follows the new role."""

    worker: str
    role: Role
    at_s: float


@dataclass(frozen=True, slots=True)
class Addition:
    """Workers of the kind of the pool with that role, asked for at `at_s`."""

    role: Role
    count: int
    at_s: float


Change = Failure | RoleChange | Addition


def failure(text: str) -> Failure:
    """`decode-0@12.5:30`: dies at 12.5 s and is back 30 s later."""
    match = _match(_FAILURE, text, "WORKER@AT_S:DOWN_S")
    return Failure(match["worker"], float(match["at"]), float(match["down"]))


def role_change(text: str) -> RoleChange:
    """`prefill-0=both@60`."""
    match = _match(_ROLE, text, "WORKER=ROLE@AT_S")
    return RoleChange(match["worker"], Role(match["role"]), float(match["at"]))


def addition(text: str) -> Addition:
    """`decode=1@60`."""
    match = _match(_ADDITION, text, "POOL=COUNT@AT_S")
    role = Role.BOTH if match["role"] == "colocated" else Role(match["role"])
    return Addition(role, int(match["count"]), float(match["at"]))


def _match(pattern: re.Pattern[str], text: str, form: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise LoadgenError(f"{text!r} is not {form}")
    return match
