"""tandem status"""

import asyncio
import json
import time
from typing import Annotated, Any

import typer

from tandem.cli import options
from tandem.cli.failure import CliError, Exit, gateway_errors

_WATCH_S = 1.0


def status(
    as_json: Annotated[bool, typer.Option("--json", help="The gateway's document as it is.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Redraw every second until Ctrl-C.")] = False,
    endpoint: options.Endpoint = options.DEFAULT_ENDPOINT,
    api_key: options.ApiKey = "",
) -> None:
    """
    Show pools, workers, pairs with transport and measured bandwidth, KV, leases, requests by phase, and the policy:
    estimates against what came, the emergency pool, who waits, what was refused.

    Examples:

      tandem status
      tandem status --watch
      tandem status --json | jq .
    """
    if as_json and watch:
        raise CliError(Exit.USAGE, "--json and --watch exclude each other")
    with gateway_errors():
        document = asyncio.run(_ask(endpoint, api_key))
        if as_json:
            typer.echo(json.dumps(document, indent=2))
        elif watch:
            _watch(document, endpoint, api_key)
        else:
            _show(document)


async def _ask(endpoint: str, api_key: str) -> dict[str, Any]:
    from tandem.client import GatewayClient

    async with GatewayClient(endpoint, api_key) as client:
        return await client.status()


def _show(document: dict[str, Any]) -> None:
    from tandem.cli.console import literal
    from tandem.cli.status_tables import render
    from tandem.client import policy_of, snapshot_of

    literal(highlight=True).print(render(snapshot_of(document), policy_of(document)))


def _watch(document: dict[str, Any], endpoint: str, api_key: str) -> None:
    from rich.live import Live

    from tandem.cli.status_tables import render
    from tandem.client import policy_of, snapshot_of

    with Live(render(snapshot_of(document), policy_of(document)), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(_WATCH_S)
            document = asyncio.run(_ask(endpoint, api_key))
            live.update(render(snapshot_of(document), policy_of(document)), refresh=True)
