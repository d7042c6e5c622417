"""A layout in the words of `tandem up`, with a few more that only a simulation understands."""

import math
import re
import shlex
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from decode_pool.expected import Admission as PromiseRule
from decode_pool.ledger import Ledger
from engine.base import WorkerIdentity
from engine.simulated.host_memory import HostTier
from engine.simulated.setup import set_up
from gateway.policy.control.controller import controller_of
from gateway.policy.roles import Aims, Fluid
from loadgen.failure import LoadgenError
from loadgen.simulate.changes import Change, addition, failure, role_change
from loadgen.simulate.layout import START_S, Declared, Layout, Overheads, Policies, Pool
from proto.worker import Role
from tandem.cli.failure import CliError
from tandem.cli.up import configuration, up
from tandem.config import TandemConfig

_OWN = "Simulation"
_HOST = re.compile(r"(\d+(?:\.\d+)?)GiB:(\d+(?:\.\d+)?)GBps")

Fail = Annotated[
    list[str] | None,
    typer.Option("--fail", metavar="WORKER@AT:DOWN", help="A worker dies at AT s, for DOWN s.", rich_help_panel=_OWN),
]
RoleAt = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="WORKER=ROLE@AT", help="A worker changes its role.", rich_help_panel=_OWN),
]
Add = Annotated[
    list[str] | None,
    typer.Option("--add", metavar="POOL=N@AT", help="Workers are added; see --start.", rich_help_panel=_OWN),
]
Start = Annotated[
    float, typer.Option("--start", metavar="S", help="How long an added worker takes to serve.", rich_help_panel=_OWN)
]
Overhead = Annotated[
    float, typer.Option("--overhead-ms", min=0, metavar="MS", help="Of the gateway, per call.", rich_help_panel=_OWN)
]
DeclaredLength = Annotated[
    Declared, typer.Option("--declared", help="What clients say of their answers' lengths.", rich_help_panel=_OWN)
]
Admission = Annotated[
    bool, typer.Option("--admission/--no-admission", help="Whether KV is reserved at all.", rich_help_panel=_OWN)
]
Controlled = Annotated[
    bool,
    typer.Option("--controlled/--plain", help="The gateway's whole policy: forecast, fairness.", rich_help_panel=_OWN),
]
FluidAims = Annotated[
    str,
    typer.Option(
        "--fluid",
        metavar="TTFT:TPOT",
        help="Colocated workers have fluid roles, to keep these limits, in ms.",
        rich_help_panel=_OWN,
    ),
]
HostMemory = Annotated[
    str,
    typer.Option(
        "--host-memory",
        metavar="SIZE:RATE",
        help="Beside each worker, for evicted KV, such as 512GiB:50GBps.",
        rich_help_panel=_OWN,
    ),
]
Node = Annotated[
    int, typer.Option("--gpus-per-node", min=1, metavar="N", help="GPUs that share NVLink.", rich_help_panel=_OWN)
]


def _own(
    fail: Fail = None,
    role: RoleAt = None,
    add: Add = None,
    start: Start = START_S,
    overhead_ms: Overhead = 1.0,
    declared: DeclaredLength = Declared.EXACT,
    admission: Admission = True,
    gpus_per_node: Node = 8,
    controlled: Controlled = False,
    fluid: FluidAims = "",
    host_memory: HostMemory = "",
) -> None:
    """The words that `tandem up` does not have."""


def parse_layout(words: str, client_timeout_s: float = 600.0) -> Layout:
    """Raises LoadgenError with what is wrong."""
    given = _parsed(words)
    try:
        config = configuration(given)
        pools = _pools(config)
    except CliError as error:
        raise LoadgenError(f"sim:{words}: {error}") from None
    except ValueError as error:  # no such profile or layout, no table, one that is not of what is asked
        raise LoadgenError(f"sim:{words}: {error}") from None
    changes: list[Change] = [failure(text) for text in given["fail"] or ()]
    changes += [role_change(text) for text in given["role"] or ()]
    changes += [addition(text) for text in given["add"] or ()]
    for name in ("start", "overhead_ms"):
        if not 0 <= given[name] < math.inf:
            raise LoadgenError(f"sim:{words}: --{name.replace('_', '-')} {given[name]:g} is not a time")
    if config.gateway.routing.handoff_after_tokens > 1:
        raise LoadgenError(f"sim:{words}: hand-offs are simulated after the first token only (handoff_after_tokens)")
    if config.gateway.routing.fluid is not None:
        raise LoadgenError(
            f"sim:{words}: fluid roles are simulated with --fluid TTFT:TPOT, not by gateway.routing.fluid"
        )
    knobs = config.worker.admission
    promise = PromiseRule(knobs.epsilon, knobs.pool_share, knobs.spread, knobs.learn)
    each_s = given["overhead_ms"] / 1e3
    transport = config.engine.link.value
    return Layout(
        pools,
        gateway=config.gateway,
        words=words.strip(),
        overheads=Overheads(each_s, each_s, each_s),
        declared=Declared(given["declared"]),
        admission=given["admission"],
        policies=Policies(ledger=lambda shape, clock, name: Ledger(shape, clock, name, promise)),
        controller=controller_of if given["controlled"] else None,
        roles=_roles(words, given["fluid"]),
        gpus_per_node=given["gpus_per_node"],
        transport="" if transport == "auto" else transport,
        max_pulls=config.worker.max_pulls,
        start_s=given["start"],
        client_timeout_s=client_timeout_s,
        changes=tuple(changes),
        host=_host(words, given["host_memory"]),
    )


def _host(words: str, text: str) -> HostTier | None:
    if not text:
        return None
    match = _HOST.fullmatch(text)
    if match is None or not float(match[1]) or not float(match[2]):
        raise LoadgenError(f"sim:{words}: --host-memory {text} is not SIZE:RATE, such as 512GiB:50GBps")
    return HostTier(float(match[1]) * 2**30, float(match[2]) * 1e9)


def _roles(words: str, text: str) -> Callable[[Callable[[], float]], Fluid] | None:
    if not text:
        return None
    try:
        ttft_ms, tpot_ms = map(float, text.split(":"))
        aims = Aims(ttft_ms / 1e3, tpot_ms / 1e3)
    except ValueError:
        raise LoadgenError(f"sim:{words}: --fluid {text} is not TTFT:TPOT in milliseconds") from None
    return partial(Fluid, aims)


def _pools(config: TandemConfig) -> tuple[Pool, ...]:
    pools = []
    for role in (Role.PREFILL, Role.DECODE, Role.BOTH):
        workers = config.layout.workers(role)
        if workers:
            setup = set_up(config.engine_of(role), WorkerIdentity(role.value, "1", role))
            pools.append(Pool(role, workers, setup.profile, setup.limits, setup.config.kv_lease_s))
    return tuple(pools)


def _parsed(words: str) -> dict[str, Any]:
    try:
        with _command().make_context("sim:", shlex.split(words)) as context:
            return dict(context.params)
    except (TyperException, ValueError) as error:
        raise LoadgenError(f"sim:{words}: {error}") from None


def _command() -> TyperCommand:
    """The command line of `tandem up`, and our own words beside it."""
    theirs, ours = _of(up), _of(_own)
    theirs.params = [*theirs.params, *ours.params]
    return theirs


def _of(function: Any) -> TyperCommand:
    app = typer.Typer(add_completion=False)
    app.command()(function)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperCommand)
    return command
