"""tandem down"""

import os
import signal
import time
from typing import Annotated

import typer

from tandem.cli import options
from tandem.cli.failure import CliError, Exit

_POLL_S = 0.1


def down(
    port: Annotated[
        int | None, typer.Option(metavar="P", help="HTTP port of the one to stop; 8000 by default.")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for requests in flight.")] = False,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
) -> None:
    """
    Stop a `tandem up` that was started in this directory, in the background or in another terminal.

    Examples:

      tandem down
      tandem down --port 9000 --now
    """
    from tandem.cli.background import run_dir_of
    from tandem.supervisor import run_state

    loaded = options.load_config(config, {"gateway": {"port": port}}, settings)
    run_dir = run_dir_of(loaded)
    state = run_state.read(run_dir)
    if state is None:
        raise CliError(Exit.FAILED, f"nothing runs on port {loaded.gateway.port} (no live state file in {run_dir})")
    os.kill(state.pid, signal.SIGTERM)
    if now:
        time.sleep(_POLL_S)  # two signals at once would be delivered as one
        os.kill(state.pid, signal.SIGTERM)
    # the supervisor bounds its own stop: drain, then a time-out for every child
    while state.alive:
        time.sleep(_POLL_S)
    typer.echo(f"stopped {state.endpoint}")
