"""A layout document handed to whatever applies it, after a yes."""

import shlex
import subprocess
import sys
from pathlib import Path

import typer

from tandem.cli.failure import warn


def apply_layout(command: str, layout: Path, *, ask: bool) -> bool:
    """Whether it runs now. Without a command nothing is done; without a terminal nobody can be asked, so neither."""
    if not command:
        return False
    line = command.replace("{}", shlex.quote(str(layout)))
    if ask and not (sys.stdin.isatty() and typer.confirm(f"Apply it with: {line} ?")):
        typer.echo(f"not applied; to apply it: {line}")
        return False
    status = subprocess.run(line, shell=True, check=False).returncode
    if status:
        warn(f"not applied: status {status} of {line}")
        return False
    typer.echo(f"applied: {line}")
    return True
