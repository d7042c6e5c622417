"""tandem up"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem.cli import options
from tandem.cli.engine_flags import EngineFlags, with_engine_flags
from tandem.cli.failure import CliError, Exit, warn
from tandem.cli.planned import require_model
from tandem.cli.simulated import require_simulated

if TYPE_CHECKING:
    from tandem.config import TandemConfig

_LAYOUT = "Layout"


@with_engine_flags()
def up(
    host: Annotated[str | None, typer.Option(metavar="H", help="HTTP address; 127.0.0.1 by default.")] = None,
    port: Annotated[int | None, typer.Option(metavar="P", help="HTTP port; 8000 by default, 0 picks one.")] = None,
    prefill: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Prefill workers.", rich_help_panel=_LAYOUT)
    ] = None,
    decode: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Decode workers.", rich_help_panel=_LAYOUT)
    ] = None,
    colocated: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Workers that do both phases.", rich_help_panel=_LAYOUT),
    ] = None,
    prefill_tp: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Tensor-parallel degree of prefill.", rich_help_panel=_LAYOUT),
    ] = None,
    decode_tp: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Tensor-parallel degree of decode.", rich_help_panel=_LAYOUT),
    ] = None,
    colocated_tp: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Tensor-parallel degree of colocated.", rich_help_panel=_LAYOUT),
    ] = None,
    *,
    engine_flags: EngineFlags,
    background: Annotated[bool, typer.Option("--background", help="Return when ready; `tandem down` stops.")] = False,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
) -> None:
    """
    Run a gateway and its workers on this machine, until Ctrl-C.

    With no layout given: one prefill and one decode worker. Ctrl-C or SIGTERM
    drains, then stops every process; a second one stops at once.

    Examples:

      tandem up
      tandem up --prefill 1 --decode 2 --model ./my-model
      tandem up --colocated 2 --port 9000
      tandem up --engine simulated --prefill 4 --decode 4
      tandem up --config layout.yaml --set gateway.drain_s=5
    """
    loaded = _configuration(
        host, port, (prefill, decode, colocated), (prefill_tp, decode_tp, colocated_tp), engine_flags, config, settings
    )
    require_model(loaded)
    if background:
        from tandem.cli.background import run_in_background

        run_in_background(loaded)
    else:
        _in_foreground(loaded)


def configuration(given: Mapping[str, Any]) -> "TandemConfig":
    """What the parsed words of `up`, by the names of its parameters, come to. Raises CliError."""
    return _configuration(
        given["host"],
        given["port"],
        (given["prefill"], given["decode"], given["colocated"]),
        (given["prefill_tp"], given["decode_tp"], given["colocated_tp"]),
        EngineFlags(**{f.name: given[f.name] for f in fields(EngineFlags)}),
        given["config"],
        given["settings"],
    )


def _configuration(
    host: str | None,
    port: int | None,
    workers: tuple[int | None, int | None, int | None],
    tps: tuple[int | None, int | None, int | None],
    engine_flags: EngineFlags,
    config: Path | None,
    settings: Sequence[str] | None,
) -> "TandemConfig":
    """`workers` and `tps` of the pools prefill, decode and colocated."""
    flags: dict[str, Any] = {
        "gateway": {"host": host, "port": port},
        "engine": engine_flags.settings(),
        "layout": {
            name: {"workers": count, "tp": tp}
            for name, count, tp in zip(("prefill", "decode", "colocated"), workers, tps, strict=True)
        },
    }
    loaded = options.load_config(config, flags, settings)
    if 0 in workers and not any(
        pool.workers for pool in (loaded.layout.prefill, loaded.layout.decode, loaded.layout.colocated)
    ):
        raise CliError(Exit.USAGE, "that leaves no worker at all; give --prefill and --decode, or --colocated")
    return loaded


def _in_foreground(config: "TandemConfig") -> None:
    from proto.worker import Role
    from tandem.cli.console import literal
    from tandem.supervisor.plan import PlanError
    from tandem.supervisor.supervisor import Outcome
    from tandem.supervisor.up import up as run

    warn_of_open_doors(config)
    fetch_if_packaged(config)
    require_tokenizer_of(config)
    require_simulated(config.engine_of(role) for role in Role if config.layout.workers(role))
    try:
        outcome = run(config, literal(highlight=True))
    except PlanError as e:
        raise CliError(Exit.UNMET, str(e)) from e
    if outcome is Outcome.INTERRUPTED:
        raise typer.Exit(Exit.INTERRUPTED)
    if outcome is Outcome.FAILED:
        raise typer.Exit(Exit.FAILED)


def warn_of_open_doors(config: "TandemConfig") -> None:
    from gateway.http.exposure import open_doors

    for door in open_doors(config.gateway):
        warn(f"OPEN TO THE NETWORK: {door}")


def fetch_if_packaged(config: "TandemConfig") -> None:
    """Makes a demo model that was asked for and is not there. A process of its own: this one stays small."""
    from engine.config import Backend
    from tandem.models import CATALOGUE, DEFAULT_MODEL, is_fetched

    name = config.engine.model or DEFAULT_MODEL
    if config.engine.backend is Backend.VLLM and name in CATALOGUE and not is_fetched(name):
        status = subprocess.run([sys.executable, "-m", "tandem", "models", "fetch", name], check=False).returncode
        if status:
            raise typer.Exit(status)


def require_tokenizer_of(config: "TandemConfig") -> None:
    """Engines may do without some file that the gateway needs; it would say so after they have all been loaded."""
    from engine.config import Backend
    from tandem.cli.tokenizer import require_tokenizer
    from tandem.models import DEFAULT_MODEL, ModelError, resolve

    if config.gateway.tokenizer:
        require_tokenizer(config.gateway.tokenizer)
    elif config.engine.backend is Backend.VLLM:
        try:
            model = resolve(config.engine.model or DEFAULT_MODEL)
        except ModelError:
            return  # what is wrong with the model is said where it is needed
        if Path(model).is_dir():  # else a hub's name, whose files are not here yet
            require_tokenizer(model)
