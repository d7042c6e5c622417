"""tandem up --background: the same command, detached, and a wait until it is ready."""

import subprocess
import sys
import time

import typer

from tandem.cli.failure import CliError, Exit
from tandem.config import TandemConfig
from tandem.supervisor import run_state
from tandem.supervisor.child import tail

_LOG = "up.log"
_POLL_S = 0.2


def run_in_background(config: TandemConfig) -> None:
    if config.gateway.port == 0:
        raise CliError(Exit.USAGE, "--background needs a fixed --port, so that `tandem down` can find it")
    if why := run_state.obstacle(config.supervisor.run_dir):
        raise CliError(Exit.UNMET, why)
    run_dir = run_state.folder(config.supervisor.run_dir, config.gateway.port)
    run_dir.mkdir(parents=True, exist_ok=True)
    log = run_dir / _LOG
    arguments = [argument for argument in sys.argv[1:] if argument != "--background"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tandem", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    typer.echo(f"starting in the background, pid {process.pid}; progress is in {log}")
    while process.poll() is None:
        state = run_state.read(run_dir)
        if state is not None and state.pid == process.pid and state.state == "ready":
            typer.echo(log.read_text())
            return
        time.sleep(_POLL_S)
    for line in tail(log, lines=40):
        typer.echo(line, err=True)
    raise typer.Exit(process.returncode)
