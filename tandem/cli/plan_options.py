"""Options that the commands of tandem plan share."""

from typing import Annotated

import typer

from tandem.cli import options
from tandem.cli.failure import CliError, Exit

SEARCH = "Search"

Model = Annotated[
    str, typer.Option(metavar="DEVICE/MODEL", help="Such as h200-sxm/qwen3-32b; ?gib=N for memory. Needed.")
]
Gpus = Annotated[str, typer.Option(metavar="N", help="How many, or '4x h200-sxm + 4x h200-sxm?gib=96@PRICE'. Needed.")]
Observed = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE|URL",
        help="Instead of a workload: what `tandem traffic -o` wrote, or a gateway to ask. Repeat for each gateway.",
        rich_help_panel=options.TRAFFIC,
    ),
]
Within = Annotated[
    float | None,
    typer.Option(metavar="S", min=1, help="Of that, what came in the last S seconds.", rich_help_panel=options.TRAFFIC),
]
Goodput = Annotated[
    list[str] | None,
    typer.Option(metavar="LIMITS", help="In ms: 'ttft:1000 tpot:50'.", rich_help_panel=options.TRAFFIC),
]
Slo = Annotated[str, typer.Option(metavar="PRESET", help="Instead of limits.", rich_help_panel=options.TRAFFIC)]
Goals = Annotated[str, typer.Option(help="Attainment to keep; the lowest ranks.", rich_help_panel=options.TRAFFIC)]
PrefillModel = Annotated[
    str, typer.Option(metavar="DEVICE/MODEL", help="Another kind of GPU for prefill pools.", rich_help_panel=SEARCH)
]
MaxNumSeqs = Annotated[int, typer.Option(metavar="N", min=1, help="Sequences in one batch.", rich_help_panel=SEARCH)]
GpusPerNode = Annotated[int, typer.Option(metavar="N", min=1, help="GPUs that share NVLink.", rich_help_panel=SEARCH)]
Jobs = Annotated[int, typer.Option(metavar="N", min=1, help="Processes.", rich_help_panel=SEARCH)]
Budget = Annotated[
    float | None,
    typer.Option(metavar="S", min=1, help="Seconds, after which there is a partial plan.", rich_help_panel=SEARCH),
]


def need(model: str, gpus: str, command: str) -> None:
    """Raises CliError."""
    for flag, given in (("--model", model), ("--gpus", gpus)):
        if not given:
            raise CliError(Exit.USAGE, f"{command} needs {flag}; see {command} --help")
