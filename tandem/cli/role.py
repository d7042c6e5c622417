"""tandem role"""

import asyncio
from typing import Annotated, Any

import typer

from tandem.cli import options
from tandem.cli.failure import CliError, Exit, gateway_errors


def role(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="As `tandem status` names it.")],
    wanted: Annotated[str, typer.Argument(metavar="prefill|decode|both", help="What it does from now on.")],
    endpoint: options.Endpoint = options.DEFAULT_ENDPOINT,
    api_key: options.ApiKey = "",
) -> None:
    """
    Change what a worker does, while it runs. What it has begun it ends; a restart gives it the role it was started with.

    Examples:

      tandem role decode-1 prefill
      tandem role decode-1 both
    """
    from proto.worker import Role
    from tandem.client import GatewayClient

    if wanted not in set(Role):
        raise CliError(Exit.USAGE, f"{wanted} is not a role; choose prefill, decode or both")

    async def ask() -> dict[str, Any]:
        async with GatewayClient(endpoint, api_key) as client:
            return await client.set_role(worker, wanted)

    with gateway_errors():
        reply = asyncio.run(ask())
    before = reply.get("before", "unknown")
    typer.echo(f"{worker} is {wanted} already" if before == wanted else f"{worker} is {wanted} now; it was {before}")
