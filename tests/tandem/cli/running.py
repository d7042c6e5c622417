"""The command line as a test runs it."""

import subprocess
import sys

from typer.testing import CliRunner, Result

from tandem.cli.app import app


def tandem(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The real thing, with its exit status and its stderr."""
    return subprocess.run([sys.executable, "-m", "tandem", *arguments], capture_output=True, text=True, check=False)
