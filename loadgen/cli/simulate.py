"""`loadgen simulate`: one layout in virtual time, one or many rates."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from loadgen.cli import build
from loadgen.cli.arms import virtual_arm
from loadgen.cli.finish import finish
from loadgen.cli.options import JudgeOptions, LoadOptions, OutputOptions, ReproduceOptions, with_options
from loadgen.cli.run import choose_rates, sweep
from loadgen.cli.session import Session
from loadgen.failure import LoadgenError
from loadgen.report.terminal import terminal

_PREFIX = "sim:"


def register(app: typer.Typer) -> None:
    app.command("simulate")(command)


@with_options(load=LoadOptions, judge=JudgeOptions, output=OutputOptions, paper=ReproduceOptions)
def command(
    layout: Annotated[
        str, typer.Argument(help="'sim:WORDS' in one argument: words of tandem up, and those of a simulation.")
    ] = "",
    rate: Annotated[
        str, typer.Option("--rate", "-r", help="Requests per second; several parted by commas.", rich_help_panel="Load")
    ] = "",
    seeds: Annotated[
        int,
        typer.Option("--seeds", min=1, help="Simulations per rate, each with its own seed.", rich_help_panel="Load"),
    ] = 1,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Of one request, seconds.", metavar="S", rich_help_panel="Load")
    ] = 600.0,
    gpus: Annotated[
        float | None, typer.Option("--gpus", help="Instead of the layout's.", rich_help_panel="SLO")
    ] = None,
    *,
    load: LoadOptions,
    judge: JudgeOptions,
    output: OutputOptions,
    paper: ReproduceOptions,
) -> None:
    """Simulate a fleet under the gateway's own policies; figures of a model, in the form of a run.

    --fluid TTFT:TPOT, limits in ms, has workers whose role follows the traffic
    (docs/fluid-roles.md).

    Examples:

      loadgen simulate \\
        "sim:--profile h200-sxm/llama-3.1-8b --prefill 4 --decode 4" \\
        -w azure-conv --rate 20,40 -d 120 --goodput "ttft:500 tpot:50"
      loadgen simulate \\
        "sim:--profile h200-sxm/qwen3-32b --colocated 8 --fluid 1000:50" \\
        -w azure-code --rate 30 -d 60 --goodput "ttft:1000 tpot:50"
    """
    if paper.reproduce:
        raise typer.Exit(_reproduce(paper, load.seed, output))
    if not layout:
        raise LoadgenError('say which layout: "sim:--profile h200-sxm/llama-3.1-8b --prefill 4 --decode 4"')
    started = datetime.now(UTC)
    rates = choose_rates(rate, load)
    experiment = build.experiment(load, judge, None, rates[0])
    build.check_gpus(gpus)
    if not timeout > 0:
        raise LoadgenError("--timeout must be above 0")
    arm = virtual_arm("simulated", layout.removeprefix(_PREFIX), gpus, timeout)
    build.check_output(output)
    session = Session(output.quiet)

    async def main(session: Session) -> None:
        await sweep(session, experiment, arm, rates, seeds, judge.reference)

    session.run(main)
    config = build.config("simulate", load=load, judge=judge, rate=rate, seeds=seeds, timeout=timeout, layout=layout)
    finish("run", session, experiment, output, config, started)


def _reproduce(paper: ReproduceOptions, seed: int, output: OutputOptions) -> int:
    from loadgen.reproduce.command import Options, reproduce

    out = Path(output.out) if output.out else None
    options = Options(
        seed, paper.jobs, paper.share, out, output.quiet, paper.host_us, fine=paper.fine, quick=paper.quick
    )
    return reproduce(paper.reproduce, options, terminal(markup=True))
