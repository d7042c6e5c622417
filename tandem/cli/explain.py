"""tandem explain"""

import asyncio
import json
from typing import Annotated, Any

import typer

from tandem.cli import options
from tandem.cli.failure import gateway_errors


def explain(
    request_id: Annotated[str, typer.Argument(help="The answer's x-tandem-request-id, or its own id.")],
    as_json: Annotated[bool, typer.Option("--json", help="The gateway's document as it is.")] = False,
    endpoint: options.Endpoint = options.DEFAULT_ENDPOINT,
    api_key: options.ApiKey = "",
) -> None:
    """
    Show why a recent request was served, made to wait or refused: its estimate, the candidates, their scores.

    Of one that was refused before the policy looked at it (bad input, a limit),
    what it was told.

    Examples:

      tandem explain 3f9a1c0d2b4e5f60718293a4
      tandem explain 3f9a1c0d2b4e5f60718293a4 --json | jq .
    """
    with gateway_errors():
        # An answer's own id is the request's with what OpenAI's clients expect before it.
        request_id = request_id.removeprefix("chatcmpl-").removeprefix("cmpl-")
        document = asyncio.run(_ask(request_id, endpoint, api_key))
        if as_json:
            typer.echo(json.dumps(document, indent=2))
        else:
            _show(request_id, document)


async def _ask(request_id: str, endpoint: str, api_key: str) -> dict[str, Any]:
    from tandem.client import GatewayClient

    async with GatewayClient(endpoint, api_key) as client:
        return await client.decisions(request_id)


def _show(request_id: str, document: dict[str, Any]) -> None:
    from tandem.cli.console import literal
    from tandem.cli.explain_tables import render, render_error
    from tandem.printable import printable, printable_document

    document, request_id = printable_document(document), printable(request_id)
    console = literal()
    for prompt in document["prompts"]:
        console.print(render(prompt))
    if error := document.get("error"):
        console.print(render_error(request_id, error))
