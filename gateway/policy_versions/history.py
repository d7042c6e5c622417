"""What was in force when, by whom and why: bounded, and in a file where there is one, so that it outlives the process."""

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from gateway.policy_versions.document import WrongPolicyError, policy_of
from gateway.whole_file import write_whole

log = logging.getLogger(__name__)

#: Changes that are kept.
MOST = 64


class Action(StrEnum):
    CONFIGURED = "configured"  # by the gateway's own configuration, as it started
    APPLIED = "applied"
    ROLLED_BACK = "rolled back"
    PROMOTED = "promoted"
    CANARY_STARTED = "canary started"
    CANARY_ENDED = "canary ended"

    @property
    def takes_force(self) -> bool:
        return self not in (Action.CANARY_STARTED, Action.CANARY_ENDED)


@dataclass(frozen=True, slots=True)
class Change:
    """`at`: UTC, ISO 8601. `by`: the tenant of the key; empty where no keys are asked for. `share`: of a canary.

    `configured`: digest of the policy that the gateway's configuration had. `settings`: the whole policy.
    """

    serial: int
    at: str
    action: Action
    version: str
    by: str
    note: str
    configured: str
    settings: dict[str, Any]
    share: float | None = None


class HistoryError(Exception):
    """The file cannot be written; the message names it."""


class History:
    """Newest last. With a file, a change is written before it counts."""

    def __init__(self, file: Path | None = None, most: int = MOST) -> None:
        self.file = file
        self._most = most
        self._lines = 0  # in the file, those that are too old included
        self._torn = False  # its last line was cut short by a crash
        self._changes: list[Change] = []
        if file is not None:
            self._changes = self._bounded(list(self._read(file)))

    def __iter__(self) -> Iterator[Change]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def next_serial(self) -> int:
        return self._changes[-1].serial + 1 if self._changes else 1

    @property
    def in_force(self) -> Change | None:
        return next((one for one in reversed(self._changes) if one.action.takes_force), None)

    @property
    def before(self) -> Change | None:
        """What was in force before what is. What a rollback took away is off the way that led here: who rolls back twice
        goes back further, and does not put the bad one in force again."""
        way: list[Change] = []
        for change in self._changes:
            if not change.action.takes_force:
                continue
            versions = [one.version for one in way]
            if change.action is Action.ROLLED_BACK and change.version in versions:
                del way[len(versions) - 1 - versions[::-1].index(change.version) :]
            elif versions and versions[-1] == change.version:
                way.pop()
            way.append(change)
        return way[-2] if len(way) > 1 else None

    def named(self, version: str) -> Change | None:
        """The last change that has to do with that version."""
        return next((one for one in reversed(self._changes) if one.version == version), None)

    def add(self, change: Change) -> None:
        """Raises HistoryError, and then the change is not in the history."""
        kept = self._bounded([*self._changes, change])  # as `remember` will have it
        if self.file is not None:
            try:
                self._write(self.file, change, kept)
            except OSError as error:
                raise HistoryError(f"the policy's history {self.file} cannot be written: {error.strerror}") from error
        self.remember(change)

    def remember(self, change: Change) -> None:
        """In memory alone."""
        self._changes = self._bounded([*self._changes, change])

    def _bounded(self, changes: list[Change]) -> list[Change]:
        """The newest, and in any case the one in force: canaries must not push it out."""
        kept = changes[-self._most :]
        if not any(one.action.takes_force for one in kept):
            kept = [one for one in changes if one.action.takes_force][-1:] + kept[1:]
        return kept

    def _write(self, file: Path, change: Change, kept: list[Change]) -> None:
        if self._lines < 2 * self._most:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("ab") as out:
                out.write(b"\n" * self._torn + _line(change))
            self._lines, self._torn = self._lines + 1, False
            return
        write_whole(file, b"".join(map(_line, kept)))
        self._lines, self._torn = len(kept), False

    def _read(self, file: Path) -> Iterator[Change]:
        """What cannot be read is left out, and said: a gateway must start all the same."""
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("the policy's history %s cannot be read (%s); it begins anew", file, error.strerror)
            return
        self._torn = bool(data) and not data.endswith(b"\n")
        lines = data.splitlines()
        self._lines = len(lines)
        for number, line in enumerate(lines, 1):
            try:
                yield _change(orjson.loads(line))
            except (ValueError, TypeError, KeyError, WrongPolicyError):
                log.warning("%s: line %d is no change of a policy; left out", file, number)


def _line(change: Change) -> bytes:
    return orjson.dumps(asdict(change)) + b"\n"


def _change(row: dict[str, Any]) -> Change:
    change = Change(**{each.name: row[each.name] for each in fields(Change)} | {"action": Action(row["action"])})
    policy_of(change.settings)
    return change
