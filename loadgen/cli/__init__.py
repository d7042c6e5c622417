"""The command line."""

from loadgen.cli.app import main

__all__ = ["main"]
