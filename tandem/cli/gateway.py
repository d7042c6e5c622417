"""tandem gateway"""

import asyncio
from typing import Annotated, Any

import typer

from tandem.cli import options


def gateway(
    host: Annotated[str | None, typer.Option(metavar="H", help="HTTP address; 127.0.0.1 by default.")] = None,
    port: Annotated[int | None, typer.Option(metavar="P", help="HTTP port; 8000 by default.")] = None,
    grpc_host: Annotated[str | None, typer.Option(metavar="H", help="Where workers may join.")] = None,
    grpc_port: Annotated[int | None, typer.Option(metavar="P", help="Where workers may join; 0 picks one.")] = None,
    worker: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="A worker that does not join by itself. Repeatable.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="What clients call the model.")] = None,
    tokenizer: Annotated[str | None, typer.Option(metavar="DIR", help="Holds tokenizer.json.")] = None,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
) -> None:
    """
    Run one gateway in the foreground; any number may share the same workers.

    Examples:

      tandem gateway --grpc-port 9100
      tandem gateway --worker 10.0.0.5:9200 --worker 10.0.0.6:9200 --host 0.0.0.0
    """
    options.need_addresses(worker, "--worker")
    flags: dict[str, Any] = {
        "gateway": {
            "host": host,
            "port": port,
            "grpc_host": grpc_host,
            "grpc_port": grpc_port,
            "workers": worker or None,
            "model": model,
            "tokenizer": tokenizer,
        }
    }
    section = options.load_config(config, flags, settings).gateway
    options.need_free_port(section.host, section.port, "--port")
    options.need_free_port(section.grpc_host, section.grpc_port, "--grpc-port")
    options.need_tls_files(section.tls, "gateway.tls")
    if section.tokenizer:
        from tandem.cli.tokenizer import require_tokenizer

        require_tokenizer(section.tokenizer)
    from gateway.app import run_gateway
    from tandem.process import log_to_stderr, serve

    async def run(stop: asyncio.Event) -> None:
        await run_gateway(section, stop)

    log_to_stderr()
    serve(run)
