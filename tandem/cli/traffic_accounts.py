"""Accounts of their traffic, of every gateway that was named."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tandem.address import with_scheme
from tandem.cli import options
from tandem.cli.failure import CliError, Exit, gateway_errors

Endpoints = Annotated[
    list[str],
    typer.Option(
        "--endpoint", metavar="URL", envvar="TANDEM_ENDPOINT", help="A gateway. Repeat for each one of the fleet."
    ),
]
ALONE = [options.DEFAULT_ENDPOINT]


@dataclass(frozen=True, slots=True)
class Told:
    """By endpoint: what each has told, and why one has not."""

    accounts: dict[str, dict[str, Any]]
    silent: dict[str, CliError]


def each_once(endpoints: Sequence[str], flag: str = "--endpoint") -> list[str]:
    """Raises CliError where one is named twice: its traffic would count twice."""
    found: dict[str, str] = {}
    for endpoint in endpoints:
        address = with_scheme(endpoint).rstrip("/").lower()
        if address in found:
            raise CliError(Exit.USAGE, f"{flag} {endpoint} is given twice; name each gateway once")
        found[address] = endpoint
    return list(found.values())


def ask_each(
    endpoints: Sequence[str], api_key: str, within_s: float | None = None, *, rows: bool, flag: str = "--endpoint"
) -> Told:
    """All at once, so that their ages are of one moment."""

    async def ask(endpoint: str) -> dict[str, Any] | CliError:
        from loadgen.failure import LoadgenError
        from loadgen.plan.accounts import checked
        from tandem.client import GatewayClient

        try:
            with gateway_errors():
                async with GatewayClient(endpoint, api_key, named_by=flag) as gateway:
                    return checked(endpoint, await gateway.traffic(within_s, rows=rows))
        except CliError as error:
            return error
        except LoadgenError as error:
            return CliError(Exit.FAILED, str(error))

    async def ask_all() -> list[dict[str, Any] | CliError]:
        return await asyncio.gather(*map(ask, endpoints))

    answers = dict(zip(endpoints, asyncio.run(ask_all()), strict=True))
    return Told(
        {endpoint: said for endpoint, said in answers.items() if not isinstance(said, CliError)},
        {endpoint: said for endpoint, said in answers.items() if isinstance(said, CliError)},
    )


def together(told: Told, flag: str = "--endpoint") -> dict[str, Any]:
    """One account of them all. Raises CliError where one has not told its part, or they are not of one fleet."""
    from loadgen.failure import LoadgenError
    from loadgen.plan.accounts import OneFleetError, merged, one_fleet

    if told.silent:
        missing = [str(error) for error in told.silent.values()]
        if told.accounts:
            missing[-1] += f". Without its part the traffic is not whole; leave that {flag} out to go by the others"
        raise CliError(next(iter(told.silent.values())).status, *missing)
    try:
        one_fleet(told.accounts)
        return merged(list(told.accounts.values()))
    except OneFleetError as error:
        raise CliError(Exit.USAGE, str(error)) from None
    except LoadgenError as error:
        raise CliError(Exit.FAILED, str(error)) from None
