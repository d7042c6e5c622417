"""tandem config"""

import json
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli import options
from tandem.cli.failure import CliError, warn
from tandem.cli.planned import require_model

_HELP = """
Show and check the configuration.

Examples:

  tandem config show --all > layout.yaml
  tandem config check layout.yaml
"""

app = typer.Typer(help=_HELP, no_args_is_help=True)


@app.command("show")
def show(
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    all_keys: Annotated[bool, typer.Option("--all", help="Defaults too.")] = False,
) -> None:
    """
    Print the configuration as `tandem up` would see it: file, environment and flags merged. Secrets are masked.

    Examples:

      tandem config show --all > layout.yaml
      TANDEM_GATEWAY__PORT=9000 tandem config show -c layout.yaml
    """
    import yaml

    loaded = options.load_config(config, {}, settings)
    document = json.loads(loaded.model_dump_json(exclude_unset=not all_keys))
    typer.echo(yaml.safe_dump({"version": loaded.version} | document, sort_keys=False, allow_unicode=True), nl=False)


@app.command("check")
def check(file: Annotated[Path, typer.Argument(metavar="FILE")], settings: options.Settings = None) -> None:
    """
    Check a document without starting anything; every problem is named with its path.

    Example: tandem config check layout.yaml
    """
    from proto.worker import Role

    loaded = options.load_config(file, {}, settings)
    counts = {"prefill": Role.PREFILL, "decode": Role.DECODE, "colocated": Role.BOTH}
    layout = ", ".join(
        f"{loaded.layout.workers(role)} {name} (TP {loaded.engine_of(role).tp})"
        for name, role in counts.items()
        if loaded.layout.workers(role)
    )
    typer.echo(f"{file} is valid: {layout}, {loaded.engine.backend} engine")
    try:
        require_model(loaded)
    except CliError as error:  # the document is right, and a flag may say the rest
        warn(str(error))
