"""The commands, assembled."""

import sys

import typer

from tandem.cli import (
    config,
    doctor,
    down,
    drain,
    explain,
    gateway,
    manifest,
    models,
    plan,
    policy,
    profile,
    recalibrate,
    role,
    status,
    traffic,
    up,
    version,
    worker,
)
from tandem.cli.failure import CliError, Exit, show

_HELP = """
Serve language models with prefill and decode on separate pools of workers.

Start here: [bold]tandem up[/bold] runs a gateway, a prefill worker and a decode
worker on this machine and prints a curl line to try. [bold]tandem status[/bold]
shows what runs.

Exit status: 0 all well, 1 something failed, 2 usage, 3 a setting is wrong,
4 no gateway answers, 5 the machine lacks something (port, model, engine,
memory), 130 interrupted.

Examples:

  tandem models fetch
  tandem up
  tandem status
"""

app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.command("down")(down.down)
app.command("doctor")(doctor.doctor)
app.command("status")(status.status)
app.command("traffic")(traffic.traffic)
app.command("explain")(explain.explain)
app.command("drain")(drain.drain)
app.command("role")(role.role)
app.command("gateway")(gateway.gateway)
app.command("worker")(worker.worker)
app.command("profile")(profile.profile_engine)
app.add_typer(plan.app, name="plan")
app.command("manifest")(manifest.manifest)
app.command("recalibrate")(recalibrate.recalibrate)
app.add_typer(models.app, name="models")
app.add_typer(config.app, name="config")
app.add_typer(policy.app, name="policy")
app.command("version")(version.version)


def run() -> None:
    try:
        app()
    except CliError as e:
        show(e)
        sys.exit(e.status)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
