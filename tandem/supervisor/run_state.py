"""The state file of a running `tandem up`: how `tandem down` and a second start find it."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_NAME = "up.json"
_OF_PORT = "port-{}"


@dataclass(frozen=True, slots=True)
class RunState:
    pid: int
    started_s: float  # of the process; tells a reused pid from the real one
    endpoint: str
    state: str  # starting, ready, stopping

    @property
    def alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            # zombies still answer; to an operator they are gone
            return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - self.started_s) < 1.0
        except psutil.Error:
            return False


def read(run_dir: Path) -> RunState | None:
    """The state of the supervisor that runs there now, if one does."""
    try:
        state = RunState(**json.loads((run_dir / _NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return state if state.alive else None


def folder(root: str | Path, port: int) -> Path:
    """Of the one that serves this port; `root` is `supervisor.run_dir`."""
    return Path(root).absolute() / _OF_PORT.format(port)


def obstacle(root: str | Path) -> str:
    """Why nothing can be written below it, "" where it can. Leaves nothing behind, and makes no folder."""
    there = next(path for path in (Path(root).absolute(), *Path(root).absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return ""
    except OSError as error:
        return (
            f"cannot write to {root} (supervisor.run_dir): {there}: {os.strerror(error.errno or 0)}; "
            "let this user write there, or choose another with --set supervisor.run_dir=DIR"
        )


def running(root: str | Path) -> list[RunState]:
    """All that run now, by their folders' names."""
    found = (read(one) for one in sorted(Path(root).glob(_OF_PORT.format("*"))))
    return [state for state in found if state is not None]


@contextlib.contextmanager
def announced(run_dir: Path, endpoint: str) -> Iterator["Announcement"]:
    run_dir.mkdir(parents=True, exist_ok=True)
    announcement = Announcement(run_dir / _NAME, endpoint)
    announcement.say("starting")
    try:
        yield announcement
    finally:
        announcement.path.unlink(missing_ok=True)


class Announcement:
    def __init__(self, path: Path, endpoint: str) -> None:
        self.path = path
        self._endpoint = endpoint

    def say(self, state: str) -> None:
        me = psutil.Process()
        text = json.dumps(asdict(RunState(me.pid, me.create_time(), self._endpoint, state)))
        scratch = self.path.with_suffix(".tmp")
        scratch.write_text(text)
        scratch.replace(self.path)
