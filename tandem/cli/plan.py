"""tandem plan"""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli import options
from tandem.cli.failure import CliError, Exit
from tandem.cli.plan_crossover import crossover
from tandem.cli.plan_model_card import model_card

_TRAFFIC, _SEARCH = options.TRAFFIC, "Search"

app = typer.Typer(invoke_without_command=True)
app.command("crossover")(crossover)
app.command("model-card")(model_card)


@app.callback()
def plan(
    context: typer.Context,
    model: Annotated[
        str, typer.Option(metavar="DEVICE/MODEL", help="Such as h200-sxm/qwen3-32b; ?gib=N for memory. Needed.")
    ] = "",
    gpus: Annotated[
        str, typer.Option(metavar="N", help="How many, or '4x h200-sxm + 4x h200-sxm?gib=96@PRICE'. Needed.")
    ] = "",
    workload: options.Workload = None,
    goodput: Annotated[
        list[str] | None,
        typer.Option(metavar="LIMITS", help="In ms: 'ttft:1000 tpot:50'.", rich_help_panel=_TRAFFIC),
    ] = None,
    slo: Annotated[str, typer.Option(metavar="PRESET", help="Instead of limits.", rich_help_panel=_TRAFFIC)] = "",
    goals: Annotated[
        str, typer.Option(help="Attainment to keep; the lowest ranks.", rich_help_panel=_TRAFFIC)
    ] = "0.9,0.99",
    burstiness: Annotated[
        float, typer.Option(help="Gamma shape of the gaps: 1 is Poisson, below 1 burstier.", rich_help_panel=_TRAFFIC)
    ] = 1.0,
    timeout: options.ClientTimeout = 600.0,
    seed: options.Seed = 0,
    prefill_model: Annotated[
        str,
        typer.Option(metavar="DEVICE/MODEL", help="Another kind of GPU for prefill pools.", rich_help_panel=_SEARCH),
    ] = "",
    max_num_seqs: Annotated[
        int, typer.Option(metavar="N", min=1, help="Sequences in one batch.", rich_help_panel=_SEARCH)
    ] = 256,
    gpus_per_node: Annotated[
        int, typer.Option(metavar="N", min=1, help="GPUs that share NVLink.", rich_help_panel=_SEARCH)
    ] = 8,
    what_if: Annotated[
        list[str] | None,
        typer.Option(metavar="CASE,CASE", help="output=2x,kv=fp8,burst=2x,lost-worker,…", rich_help_panel=_SEARCH),
    ] = None,
    margins: Annotated[
        bool, typer.Option("--margins/--no-margins", help="What more hardware is worth.", rich_help_panel=_SEARCH)
    ] = True,
    running: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The layout of today, to compare with.", rich_help_panel=_SEARCH),
    ] = None,
    price: Annotated[
        str, typer.Option(metavar="P", help="Per GPU-hour: a number, or h200, h100, …", rich_help_panel=_SEARCH)
    ] = "",
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Processes.", rich_help_panel=_SEARCH)] = 2,
    budget: Annotated[
        float | None,
        typer.Option(metavar="S", min=1, help="Seconds, after which there is a partial plan.", rich_help_panel=_SEARCH),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR")] = Path("plan"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress display.")] = False,
) -> None:
    """
    Find the layout of N GPUs that serves the most within the limits.

    Simulates layouts in virtual time on step-time tables: figures of a model.
    Ctrl-C gives what there is so far. Writes plan.json, plots and layout.yaml.

    Example:

      tandem plan --model h200-sxm/qwen3-32b --gpus 8 -w azure-code
        --goodput "ttft:1000 tpot:50"
    """
    if context.invoked_subcommand is not None:
        return
    for flag, given in (("--model", model), ("--gpus", gpus)):
        if not given:
            raise CliError(Exit.USAGE, f"tandem plan needs {flag}; see tandem plan --help")

    from loadgen.failure import InterruptedEarlyError, LoadgenError
    from loadgen.plan.crew import INTERRUPTED
    from loadgen.plan.session import run_plan
    from loadgen.plan.words import Words

    words = Words(
        model=model, gpus=gpus, workload=workload or (), goodput=goodput or (), slo=slo, goals=goals,
        burstiness=burstiness, seed=seed, prefill_model=prefill_model, max_num_seqs=max_num_seqs,
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
