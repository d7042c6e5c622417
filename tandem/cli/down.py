"""tandem down"""

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from tandem.address import with_scheme
from tandem.cli import options
from tandem.cli.failure import CliError, Exit

if TYPE_CHECKING:
    from tandem.supervisor.run_state import RunState

_POLL_S = 0.1


def down(
    port: Annotated[
        int | None, typer.Option(metavar="P", help="HTTP port of the one to stop; 8000 by default.")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for requests in flight.")] = False,
    endpoint: Annotated[
        str, typer.Option(metavar="URL", envvar="TANDEM_ENDPOINT", help="The one to stop, where no port is given.")
    ] = "",
    config: options.ConfigFile = None,
    settings: options.Settings = None,
) -> None:
    """
    Stop a `tandem up` that was started in this directory, in the background or in another terminal.

    Examples:

      tandem down
      tandem down --port 9000 --now
    """
    loaded = options.load_config(config, {"gateway": {"port": port}}, settings)
    said = config is not None or settings or port is not None
    state = _found(Path(loaded.supervisor.run_dir), loaded.gateway.port, "" if said else endpoint)
    os.kill(state.pid, signal.SIGTERM)
    if now:
        time.sleep(_POLL_S)  # two signals at once would be delivered as one
        os.kill(state.pid, signal.SIGTERM)
    # the supervisor bounds its own stop: drain, then a time-out for every child
    while state.alive:
        time.sleep(_POLL_S)
    typer.echo(f"stopped {state.endpoint}")


def _found(root: Path, port: int, endpoint: str) -> "RunState":
    """By its endpoint where one is given, else by its port. Raises CliError, and names what does run here."""
    from tandem.supervisor import run_state

    running = run_state.running(root)
    if endpoint:
        state = next((one for one in running if _place(one.endpoint) == _place(endpoint)), None)
        missing = f"no `tandem up` of this directory serves {endpoint} (looked in {root.absolute()})"
    else:
        folder = run_state.folder(root, port)
        state = run_state.read(folder)
        missing = f"nothing runs on port {port} (no live state file in {folder})"
    if state is None:
        others = ", ".join(f"tandem down --port {urlsplit(one.endpoint).port}" for one in running)
        raise CliError(Exit.FAILED, f"{missing}; what does run here ends with: {others}" if others else missing)
    return state


def _place(endpoint: str) -> tuple[str, int | None]:
    """Raises CliError."""
    try:
        url = urlsplit(with_scheme(endpoint))
        host, port = url.hostname or "", url.port
    except ValueError as error:
        raise CliError(Exit.USAGE, f"{endpoint} is no URL of a gateway: {error}") from None
    return "127.0.0.1" if host == "localhost" else host, port
