"""tandem plan watch"""

import time
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli import options, plan_options
from tandem.cli.failure import CliError, Exit
from tandem.cli.traffic_accounts import ALONE, Endpoints, each_once

_RHYTHM = "Rhythm"
#: Stands for what will be observed while the words are checked.
_ANY = ("fixed isl=512 osl=64",)


def watch(
    running: Annotated[
        Path, typer.Option(metavar="FILE", help="The layout document that runs.", exists=True, dir_okay=False)
    ],
    model: plan_options.Model = "",
    gpus: plan_options.Gpus = "",
    goodput: plan_options.Goodput = None,
    slo: plan_options.Slo = "",
    goals: plan_options.Goals = "0.9",
    timeout: options.ClientTimeout = 600.0,
    seed: options.Seed = 0,
    interval: Annotated[
        float, typer.Option(metavar="S", min=0, help="At most one plan in that time.", rich_help_panel=_RHYTHM)
    ] = 900.0,
    every: Annotated[
        float,
        typer.Option(
            metavar="S",
            min=1,
            help="How often rate and lengths are compared where no drift is told.",
            rich_help_panel=_RHYTHM,
        ),
    ] = 300.0,
    least: Annotated[
        int, typer.Option(metavar="N", min=50, help="Requests of the new traffic to plan by.", rich_help_panel=_RHYTHM)
    ] = 300,
    margin: Annotated[
        float,
        typer.Option(metavar="X", min=0, help="Lead that is worth a change, as a share.", rich_help_panel=_RHYTHM),
    ] = 0.05,
    rate_change: Annotated[
        float,
        typer.Option(
            metavar="X",
            min=0.05,
            help="A rate that counts as another: 0.25 is 1.25 times, up or down.",
            rich_help_panel=_RHYTHM,
        ),
    ] = 0.25,
    headroom: Annotated[
        float,
        typer.Option(
            metavar="X", min=0, max=0.4, help="Share of what a layout holds that stays free.", rich_help_panel=_RHYTHM
        ),
    ] = 0.1,
    plans: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after so many.", rich_help_panel=_RHYTHM)
    ] = None,
    apply: Annotated[
        str,
        typer.Option(metavar="COMMAND", help="Runs after a yes when a change is advised; {} is the new document."),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Apply without a question.")] = False,
    prefill_model: plan_options.PrefillModel = "",
    max_num_seqs: plan_options.MaxNumSeqs = 256,
    gpus_per_node: plan_options.GpusPerNode = 8,
    jobs: plan_options.Jobs = 2,
    budget: plan_options.Budget = 300.0,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="One folder a plan in it.")] = Path("plans"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress display.")] = False,
    endpoint: Endpoints = ALONE,
    api_key: options.ApiKey = "",
) -> None:
    """
    Plan anew when a fleet's traffic changes, and show what a change of layout or of the number of GPUs would gain.

    A drift event, lengths that are distributed otherwise, or another rate starts
    a plan from what was observed since. A change is advised only if its lead is
    the margin at least and is sure. Nothing is applied without --apply.

    Behind a load balancer name every gateway: each sees its part of the traffic.

    Example:

      tandem plan watch --running layout.yaml --model h200-sxm/qwen3-32b \\
        --gpus 8 --goodput "ttft:1000 tpot:50" \\
        --endpoint http://gw-1:8000 --endpoint http://gw-2:8000 \\
        --apply "cp {} /etc/tandem/layout.yaml"
    """
    plan_options.need(model, gpus, "tandem plan watch")
    if yes and not apply:
        raise CliError(Exit.USAGE, "--yes needs --apply COMMAND")

    from loadgen.failure import LoadgenError
    from loadgen.folder import need_writable
    from loadgen.plan.replan import Terms
    from loadgen.plan.watching import Rhythm, Watching
    from loadgen.plan.words import Words, asked
    from tandem.cli.plan_vigil import Ordered, Vigil

    endpoints = each_once(endpoint)
    words = Words(
        model=model, gpus=gpus, workload=_ANY, goodput=goodput or (), slo=slo, goals=goals, seed=seed,
        prefill_model=prefill_model, max_num_seqs=max_num_seqs, gpus_per_node=gpus_per_node, running=running,
        marginal=False, timeout_s=timeout,
    )  # fmt: skip
    try:
        need_writable(out)
        asked(words)  # what is wrong with it is said now, and not after the first drift
    except LoadgenError as error:
        raise CliError(Exit.USAGE, str(error)) from None
    ordered = Ordered(words, running, out, Terms(margin, headroom, jobs, budget, quiet), apply, ask=not yes)
    rhythm = Rhythm(interval, every, least, rate_change)
    Vigil(ordered, endpoints, api_key, Watching(rhythm, time.monotonic)).keep(plans)
