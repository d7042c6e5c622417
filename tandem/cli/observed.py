"""Observed traffic, of a file or of gateways that are asked."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.cli.failure import CliError, Exit
from tandem.cli.traffic_accounts import ask_each, each_once, together

if TYPE_CHECKING:
    from loadgen.workload.observed import Observed

_FLAG = "--observed"


def observed_traffic(where: Sequence[str], within_s: float | None, api_key: str) -> "Observed | None":
    """`where`: a file, or the URLs of gateways whose traffic is one. Raises CliError."""
    from loadgen.failure import LoadgenError
    from loadgen.workload.observed import Observed

    if not where:
        if within_s is not None:
            raise CliError(Exit.USAGE, "--within goes with --observed")
        return None
    if "" in where:
        raise CliError(Exit.USAGE, "--observed is empty; name a file or a gateway's URL")
    files = [one for one in where if not _is_url(one)]
    if files and len(where) > 1:
        raise CliError(
            Exit.USAGE, f"--observed {files[0]}: a file stands alone; `tandem traffic -o` merges gateways in one"
        )
    try:
        return Observed.of(_read(Path(files[0])) if files else _asked(where, api_key), within_s)
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


def _asked(urls: Sequence[str], api_key: str) -> dict[str, Any]:
    return together(ask_each(each_once(urls, _FLAG), api_key, rows=True, flag=_FLAG), _FLAG)
