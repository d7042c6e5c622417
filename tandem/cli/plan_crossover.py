"""tandem plan crossover"""

import math
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.failure import CliError, Exit


def crossover(
    model: Annotated[str, typer.Option(metavar="DEVICE/MODEL", help="A dense model, such as h200-sxm/qwen3-32b.")],
    gpus: Annotated[int, typer.Option(metavar="N", min=2, help="2, 4 or 8.")] = 8,
    outputs: Annotated[str, typer.Option(metavar="N,N", help="Mean answers, in tokens.")] = "250,1000,2500,6000",
    spread: Annotated[float, typer.Option(metavar="CV", min=0, help="Their coefficient of variation.")] = 0.7,
    at_once: Annotated[str, typer.Option(metavar="N,N", help="Answers in flight on all GPUs.")] = "512,8192",
    max_num_seqs: Annotated[int, typer.Option(metavar="N", min=1, help="Sequences in one engine.")] = 1024,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CASE,CASE",
            help="hbm=, bandwidth=, compute=, link=, kv=fp8, weights=fp8, fp8=ideal, seqs=; 'none'. By default eight of them.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Processes.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="For JSON and pictures.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress display.")] = False,
) -> None:
    """
    Find the model size from which tensor parallelism beats pure replicas.

    Prints the curve over the size of dense models, and how memory, links and
    precision move the point where both are as fast. Figures of a model.

    Example:

      tandem plan crossover --model h200-sxm/qwen3-32b --what-if hbm=1.25x,kv=fp8
    """
    from loadgen.failure import LoadgenError
    from loadgen.plan.crossover.session import WHAT_IFS, Words, run_crossover
    from loadgen.report.terminal import terminal

    console = terminal()
    try:
        means, limits = _numbers("--outputs", outputs), _numbers("--at-once", at_once)
        cases = WHAT_IFS if what_if is None else [] if what_if == ["none"] else what_if
        words = Words(model, gpus, means, spread, [round(n) for n in limits], max_num_seqs, cases)
        run_crossover(words, jobs, out, quiet, console)
    except LoadgenError as error:
        raise CliError(Exit.USAGE, str(error)) from None


def _numbers(flag: str, text: str) -> list[float]:
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(map(math.isfinite, found)):  # what is no number is neither too small nor too large
        raise CliError(Exit.USAGE, f"{flag} {text}: expected numbers, for example 1000,6000")
    return found
