"""`loadgen`: commands, and the one place where errors become exit codes."""

import re
import sys
from collections.abc import Sequence

import typer
from rich.console import Console

from loadgen.cli import compare, report, run, search, selftest, simulate, workload
from loadgen.failure import LoadgenError

_PAIR = re.compile(r"(ttft|tpot|e2el|itl\w*(\.\d+)?):\S*")

_HELP = """
Measures how many requests per second per GPU a serving layout really serves within its latency promises.

Examples:

  loadgen workload list
  loadgen run localhost:8000 -w azure-conv --rate 2,4,8 -d 120 \\
    --goodput "ttft:500 tpot:50"
"""

#: 0 good, 1 regression, 2 cannot be done as asked, 3 the run is invalid, 130 interrupted.
app = typer.Typer(
    name="loadgen",
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(workload.app, name="workload")
for _module in (run, simulate, search, compare, report, selftest):
    _module.register(app)


def main() -> None:
    try:
        app(args=gathered(sys.argv[1:]))
    except LoadgenError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"loadgen: {error}", markup=False, emoji=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def gathered(words: Sequence[str]) -> list[str]:
    """Lets `--goodput ttft:200 tpot:20` be written without quotes, as vLLM's."""
    joined: list[str] = []
    for word in words:
        if len(joined) > 1 and joined[-2] == "--goodput" and _PAIR.fullmatch(word):
            joined[-1] = f"{joined[-1]} {word}"
        else:
            joined.append(word)
    return joined
