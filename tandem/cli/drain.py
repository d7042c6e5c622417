"""tandem drain"""

import asyncio
from typing import Annotated, Any

import typer

from tandem.cli import options
from tandem.cli.failure import gateway_errors


def drain(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="As `tandem status` names it.")],
    resume: Annotated[bool, typer.Option("--resume", help="Take new work again.")] = False,
    endpoint: options.Endpoint = options.DEFAULT_ENDPOINT,
    api_key: options.ApiKey = "",
) -> None:
    """
    Give a worker no new work. Running answers go on at others with room (policy.drain); the rest may finish. Undo with --resume.

    Examples:

      tandem drain decode-0
      tandem drain decode-0 --resume
    """
    from gateway.wording import counted
    from tandem.client import GatewayClient

    async def ask() -> dict[str, Any]:
        async with GatewayClient(endpoint, api_key) as client:
            return await client.drain(worker, resume)

    with gateway_errors():
        reply = asyncio.run(ask())
    if resume:
        typer.echo(f"{worker} takes new work again")
    else:
        outstanding = reply.get("outstanding")
        runs = (
            "how much runs on it is unknown"
            if outstanding is None
            else f"{counted(outstanding, 'request')} to end on it"
        )
        typer.echo(f"{worker} drains; {runs}")
