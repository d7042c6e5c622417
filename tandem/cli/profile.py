"""tandem profile"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from tandem.cli import options
from tandem.cli.engine_flags import EngineFlags, with_engine_flags
from tandem.cli.failure import CliError, Exit

if TYPE_CHECKING:
    from engine.base import WorkerIdentity
    from engine.config import EngineConfig
    from engine.simulated.cost.measured import MeasuredStep
    from engine.simulated.cost.table import Table
    from tandem.config import TandemConfig

_GRID = "Grid"


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1:
        raise CliError(Exit.USAGE, f"--{name} {text}: expected whole numbers from 1, for example 1,8,32")
    return numbers


@with_engine_flags("link")
def profile_engine(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The table; .json or .json.gz.")],
    batches: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Decode batch sizes.", rich_help_panel=_GRID)
    ] = None,
    contexts: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Tokens before each decode step.", rich_help_panel=_GRID)
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Prompt lengths.", rich_help_panel=_GRID)
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Of every point.", rich_help_panel=_GRID)
    ] = None,
    most_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Leave out points with more KV.", rich_help_panel=_GRID)
    ] = None,
    pair: Annotated[
        bool, typer.Option("--pair", help="Start a second engine: measure the link, and how they slow each other down.")
    ] = False,
    tp: Annotated[int | None, typer.Option(metavar="N", min=1, help="Tensor-parallel degree.")] = None,
    *,
    engine_flags: EngineFlags,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
) -> None:
    """
    Measure the steps of a live engine, for the simulated one to imitate.

    Starts one engine with a worker's settings and has it to itself: stop
    whatever else uses the machine. Takes minutes on a CPU. With --pair a
    second one pulls KV from it and works beside it, as in a pair that shares
    the cores of one machine.

    Examples:

      tandem profile --out smollm2.json --pair
      tandem up --engine simulated --profile file:smollm2.json
      tandem profile --out big.json.gz --batches 1,8,64 --contexts 128,2048
    """
    flags: dict[str, Any] = {"engine": {"tp": tp} | engine_flags.settings()}
    grid = {
        "batches": None if batches is None else _numbers("batches", batches),
        "contexts": None if contexts is None else _numbers("contexts", contexts),
        "lengths": None if lengths is None else _numbers("lengths", lengths),
        "repeats": repeats,
        "most_tokens": most_tokens,
    }
    if out.is_dir() or not out.parent.is_dir():
        raise CliError(Exit.USAGE, f"--out {out}: expected a file in a directory that exists")
    section = _engine(options.load_config(config, flags, settings))
    table = asyncio.run(_measured(section, grid, pair=pair))
    from engine.simulated.cost.table import write_table

    write_table(table, out)
    _tell(table, out)


def _engine(loaded: "TandemConfig") -> "EngineConfig":
    from tandem.supervisor.plan import PlanError
    from tandem.supervisor.up import with_model

    try:
        return with_model(loaded).engine
    except PlanError as e:
        raise CliError(Exit.UNMET, str(e)) from e


async def _measured(section: "EngineConfig", grid: Mapping[str, Any], *, pair: bool) -> "Table":
    from engine.base import EngineDeadError, WorkerIdentity
    from engine.simulated.cost.measured import TooFewPointsError
    from engine.simulated.cost.profile_engine import Plan, profile
    from proto.fault import FaultError
    from proto.worker import Role
    from tandem.worker.backend import make_engine

    identity = WorkerIdentity("profile", "profile", Role.BOTH)
    wanted = {key: value for key, value in grid.items() if value is not None}
    try:
        budget = section.max_num_batched_tokens or _step_tokens(section, identity) or Plan().max_num_batched_tokens
        plan = Plan(**wanted, max_num_batched_tokens=budget)
        section = section.model_copy(update={"max_num_batched_tokens": budget})
        engine = make_engine(section, identity)
        neighbour = make_engine(section, WorkerIdentity("neighbour", "profile", Role.BOTH)) if pair else None
        with _Progress() as progress:
            return await profile(
                engine, plan, neighbour=neighbour, planned=progress.planned, progress=progress.measured
            )
    except TooFewPointsError as e:
        raise CliError(Exit.USAGE, f"{e}; widen --batches, --contexts or --lengths, or raise --most-tokens") from e
    except (EngineDeadError, FaultError, TimeoutError, ValueError) as e:
        raise CliError(Exit.FAILED, f"the engine could not be measured: {e or 'it went silent'}") from e


def _step_tokens(section: "EngineConfig", identity: "WorkerIdentity") -> int | None:
    """The token budget of a step that this engine would have as a worker; None where nothing of ours decides it."""
    from engine.config import Backend

    if section.backend is Backend.SIMULATED:
        from engine.simulated.setup import set_up

        return set_up(section, identity).profile.max_num_batched_tokens
    from engine.vllm.settings import CPU_STEP_TOKENS
    from tandem.supervisor import machine

    return None if machine.inspect().gpus else CPU_STEP_TOKENS


class _Progress:
    """A bar on a terminal; a line a tenth where the output goes to a file."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("starting the engine", total=None)
        self._done = 0
        self._total = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def planned(self, total: int) -> None:
        self._total = total
        self._bar.update(self._task, total=total, description="measuring")
        self._say(f"measuring {total} steps")

    def measured(self, step: "MeasuredStep") -> None:
        self._done += 1
        what = f"{step.batch} decodes at {step.context}" if not step.new else f"{step.new} new tokens"
        self._bar.update(self._task, completed=self._done, description=f"{what}: {step.s * 1000:.1f} ms")
        if self._done * 10 // self._total > (self._done - 1) * 10 // self._total:
            self._say(f"{self._done} of {self._total}")

    def _say(self, line: str) -> None:
        if not self._console.is_terminal:
            typer.echo(line, err=True)


def _tell(table: "Table", out: Path) -> None:
    typer.echo(f"{out}: {table.model} on {table.device}, {table.source['points']} measured steps")
    for name, error in table.fit.items():
        typer.echo(f"  {name.replace('_', ' ')}: {error:.1%}")
    for kind, factor in table.sharing.items():
        typer.echo(f"  {kind} beside a busy neighbour: {factor - 1:+.1%}")
    for name, (rate, latency_s) in table.links.items():
        typer.echo(f"  link {name}: {rate / 1e9:.2f} GB/s, {latency_s * 1e3:.2f} ms")
    typer.echo(f"try it: tandem up --engine simulated --profile file:{out}")
