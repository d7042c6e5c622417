"""tandem plan"""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli import options, plan_options
from tandem.cli.failure import CliError, Exit
from tandem.cli.observed import observed_traffic
from tandem.cli.plan_crossover import crossover
from tandem.cli.plan_model_card import model_card
from tandem.cli.plan_watch import watch

app = typer.Typer(invoke_without_command=True)
app.command("crossover")(crossover)
app.command("watch")(watch)
app.command("model-card")(model_card)


@app.callback()
def plan(
    context: typer.Context,
    model: plan_options.Model = "",
    gpus: plan_options.Gpus = "",
    workload: options.Workload = None,
    observed: plan_options.Observed = None,
    within: plan_options.Within = None,
    goodput: plan_options.Goodput = None,
    slo: plan_options.Slo = "",
    goals: plan_options.Goals = "0.9,0.99",
    burstiness: Annotated[
        float | None,
        typer.Option(
            help="Gamma shape of the gaps: 1 is Poisson, below 1 burstier. As observed, or 1.",
            rich_help_panel=options.TRAFFIC,
        ),
    ] = None,
    timeout: options.ClientTimeout = 600.0,
    seed: options.Seed = 0,
    api_key: options.ApiKey = "",
    prefill_model: plan_options.PrefillModel = "",
    max_num_seqs: plan_options.MaxNumSeqs = 256,
    gpus_per_node: plan_options.GpusPerNode = 8,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CASE,CASE",
            help="output=2x, input=, burst=, kv=fp8, hbm=, bandwidth=, compute=, link=, gpu=, lost-worker, lost-node.",
            rich_help_panel=plan_options.SEARCH,
        ),
    ] = None,
    margins: Annotated[
        bool,
        typer.Option(
            "--margins/--no-margins",
            help="What +10 % HBM, 2x link, +1 GPU … would be worth.",
            rich_help_panel=plan_options.SEARCH,
        ),
    ] = True,
    running: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The layout document of today: ranked, too.", rich_help_panel=plan_options.SEARCH
        ),
    ] = None,
    price: Annotated[
        str,
        typer.Option(
            metavar="P",
            help="Per GPU-hour: a number, or h200, h100, … By default a guess for the device.",
            rich_help_panel=plan_options.SEARCH,
        ),
    ] = "",
    jobs: plan_options.Jobs = 2,
    budget: plan_options.Budget = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR")] = Path("plan"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress display.")] = False,
) -> None:
    """
    Find the layout of N GPUs that serves the most within the limits.

    Simulates layouts in virtual time on step-time tables: figures of a model.
    Ctrl-C gives what there is so far. Writes plan.json, plots and layout.yaml.

    Examples:

      tandem plan --model h200-sxm/qwen3-32b --gpus 8 -w azure-code \\
        --goodput "ttft:1000 tpot:50"
      tandem plan --model h200-sxm/qwen3-32b --gpus 8 --running layout.yaml \\
        --observed http://127.0.0.1:8000 --goodput "ttft:1000 tpot:50"
    """
    if context.invoked_subcommand is not None:
        return
    plan_options.need(model, gpus, "tandem plan")

    from loadgen.failure import InterruptedEarlyError, LoadgenError
    from loadgen.plan.crew import INTERRUPTED
    from loadgen.plan.session import run_plan
    from loadgen.plan.words import Words

    words = Words(
        model=model, gpus=gpus, workload=workload or (), goodput=goodput or (), slo=slo, goals=goals,
        observed=observed_traffic(observed or (), within, api_key), burstiness=burstiness, seed=seed, prefill_model=prefill_model, max_num_seqs=max_num_seqs,
        gpus_per_node=gpus_per_node, price=price, what_if=what_if or (), running=running, marginal=margins,
        timeout_s=timeout,
    )  # fmt: skip
    try:
        planned = run_plan(words, jobs, budget, out, quiet)
    except InterruptedEarlyError as error:
        raise CliError(Exit.INTERRUPTED, str(error)) from None
    except LoadgenError as error:
        raise CliError(Exit.USAGE, str(error)) from None
    if planned.incomplete == INTERRUPTED:
        raise typer.Exit(Exit.INTERRUPTED)
