"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    try:
        return version("tandem-serve")
    except PackageNotFoundError:
        return "0"


VERSION = _installed()
