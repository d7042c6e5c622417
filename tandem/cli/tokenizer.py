"""Whether the gateway will find its tokenizer, asked before anything starts rather than by the first request."""

import subprocess
import sys
from pathlib import Path

from tandem.cli.failure import CliError, Exit


def require_tokenizer(directory: str) -> None:
    """Loads it, in a process of its own; raises CliError. The built-in one needs no directory."""
    from gateway.text.pool import BYTE_LEVEL

    if directory == BYTE_LEVEL:
        return
    fix = "set gateway.tokenizer (tandem gateway --tokenizer DIR) to a directory with tokenizer.json"
    if not Path(directory).is_dir():
        raise CliError(Exit.UNMET, f"no tokenizer: {directory} is not a directory; {fix}")
    if not (Path(directory) / "tokenizer.json").is_file():
        raise CliError(Exit.UNMET, f"no tokenizer: {directory} has no tokenizer.json; {fix}")
    check = [sys.executable, "-m", "gateway.text.check", directory]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    if done.returncode:
        cause = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise CliError(Exit.UNMET, f"no tokenizer: {cause[0]}; {fix}")
