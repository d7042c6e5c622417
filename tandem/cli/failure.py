"""How commands fail: one line of cause and fix on stderr, and an exit status from a short list."""

import contextlib
from collections.abc import Iterator
from enum import IntEnum

import typer


class Exit(IntEnum):
    """Documented in README.md and `tandem --help`; scripts may rely on it."""

    OK = 0
    FAILED = 1  # something that ran has failed
    USAGE = 2  # from the argument parser
    CONFIG = 3  # a setting is wrong
    UNREACHABLE = 4  # no gateway answers
    UNMET = 5  # the machine lacks something: port, model, engine, memory
    INTERRUPTED = 130


class CliError(Exception):
    def __init__(self, status: Exit, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.status = status
        self.problems = problems


def show(error: CliError) -> None:
    for problem in error.problems:
        typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
        typer.echo(problem, err=True)


def warn(problem: str) -> None:
    typer.secho("warning: ", fg="yellow", bold=True, nl=False, err=True)
    typer.echo(problem, err=True)


@contextlib.contextmanager
def config_errors() -> Iterator[None]:
    from tandem.config_error import ConfigError

    try:
        yield
    except ConfigError as e:
        raise CliError(Exit.CONFIG, *e.problems) from e


@contextlib.contextmanager
def gateway_errors() -> Iterator[None]:
    from tandem.client import GatewayRefusedError, GatewayUnreachableError

    try:
        yield
    except GatewayUnreachableError as e:
        raise CliError(Exit.UNREACHABLE, str(e)) from e
    except GatewayRefusedError as e:
        raise CliError(Exit.FAILED, str(e)) from e
