"""tandem worker"""

import asyncio
from typing import Annotated, Any

import typer

from tandem.cli import options
from tandem.cli.engine_flags import EngineFlags, with_engine_flags
from tandem.cli.failure import CliError, Exit
from tandem.cli.planned import require_model
from tandem.cli.simulated import require_simulated


@with_engine_flags()
def worker(
    role: Annotated[str, typer.Option(metavar="prefill|decode|both", help="What it does first; may change later.")],
    join: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="A gateway's gRPC address. Repeatable.")
    ] = None,
    worker_id: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="Unique in the fleet; host and pid by default.")
    ] = None,
    host: Annotated[str | None, typer.Option(metavar="H", help="gRPC address; 127.0.0.1 by default.")] = None,
    port: Annotated[int | None, typer.Option(metavar="P", help="gRPC port; a free one by default.")] = None,
    advertise_host: Annotated[str | None, typer.Option(metavar="H", help="What gateways dial, if not --host.")] = None,
    tp: Annotated[int | None, typer.Option(metavar="N", min=1, help="Tensor-parallel degree.")] = None,
    *,
    engine_flags: EngineFlags,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
) -> None:
    """
    Run one worker (one engine on one TP group) in the foreground. Without --join, give its address to a gateway.

    Examples:

      tandem worker --role decode --join 10.0.0.1:9100 --host 0.0.0.0
      tandem worker --role both --port 9200 --engine simulated
    """
    from tandem.supervisor.plan import PlanError
    from tandem.supervisor.up import with_model

    options.need_addresses(join, "--join")
    own = {"worker_id": worker_id, "host": host, "port": port, "advertise_host": advertise_host, "join": join or None}
    flags: dict[str, Any] = {
        "worker": {"role": role} | own,
        "engine": {"tp": tp} | engine_flags.settings(),
    }
    said = options.load_config(config, flags, settings)
    require_model(said)
    try:
        loaded = with_model(said)
    except PlanError as e:
        raise CliError(Exit.UNMET, str(e)) from e
    section = loaded.worker_of(loaded.worker.role)
    options.need_free_port(section.host, section.port, "--port")
    options.need_tls_files(section.tls, "worker.tls")
    require_simulated([section.engine])

    from tandem.process import log_to_stderr, serve
    from tandem.worker.process import run_worker

    async def run(stop: asyncio.Event) -> None:
        await run_worker(section, stop)

    log_to_stderr()
    serve(run)
