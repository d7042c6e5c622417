"""Observed traffic, of a file or of a gateway that is asked."""

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.cli.failure import CliError, Exit, gateway_errors

if TYPE_CHECKING:
    from loadgen.workload.observed import Observed


def observed_traffic(where: str, within_s: float | None, api_key: str) -> "Observed | None":
    """`where`: a file, a URL, or "" for none. Raises CliError."""
    from loadgen.failure import LoadgenError
    from loadgen.workload.observed import Observed

    if not where:
        if within_s is not None:
            raise CliError(Exit.USAGE, "--within goes with --observed")
        return None
    try:
        return Observed.of(_asked(where, api_key) if _is_url(where) else _read(Path(where)), within_s)
    except LoadgenError as error:
        raise CliError(Exit.USAGE, str(error)) from None


def _is_url(where: str) -> bool:
    """HOST:PORT, too, as with --endpoint."""
    return "://" in where or (re.fullmatch(r"[^/]+:\d+", where) is not None and not Path(where).exists())


def _read(path: Path) -> dict[str, Any]:
    """One document, whether on one line or on many."""
    from loadgen.failure import LoadgenError
    from loadgen.workload.readers.lines import opened

    with opened(path) as text:
        said = text.read()
    if not said.strip():
        raise LoadgenError(f"{path}: empty")
    try:
        document = json.loads(said)
    except ValueError as error:
        raise LoadgenError(f"{path}: not JSON ({error})") from None
    if not isinstance(document, dict):
        raise LoadgenError(f"{path}: not a JSON object")
    return document


def _asked(url: str, api_key: str) -> dict[str, Any]:
    from tandem.client import GatewayClient

    async def ask() -> dict[str, Any]:
        async with GatewayClient(url, api_key, named_by="--observed") as gateway:
            return await gateway.traffic(rows=True)

    with gateway_errors():
        return asyncio.run(ask())
