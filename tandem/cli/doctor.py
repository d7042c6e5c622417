"""tandem doctor"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.cli import options
from tandem.cli.engine_flags import EngineFlags, with_engine_flags
from tandem.cli.failure import CliError, Exit
from tandem.cli.planned import require_model
from tandem.cli.simulated import require_profiles, require_scripts, require_vocabularies

if TYPE_CHECKING:
    from tandem.config import TandemConfig
    from tandem.doctor.checks import Finding


@with_engine_flags()
def doctor(
    *,
    engine_flags: EngineFlags,
    as_json: Annotated[bool, typer.Option("--json", help="The findings as JSON.")] = False,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
) -> None:
    """
    Look for what would keep `tandem up` from running here, and start nothing.

    GPUs and driver, engine, NIXL, shared memory, limits, ports, memory, model
    and tokenizer. Ends with 5 if something fails; warnings are no failure.

    Examples:

      tandem doctor
      tandem doctor --config layout.yaml
      tandem doctor --engine simulated --json
    """
    loaded = options.load_config(config, {"engine": engine_flags.settings()}, settings)
    findings = _findings(loaded)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in findings], indent=2))
    else:
        _show(findings)
    if any(one.verdict == "fails" for one in findings):
        raise typer.Exit(Exit.UNMET)


def _findings(config: "TandemConfig") -> "list[Finding]":
    from engine.config import Backend
    from proto.worker import Role
    from tandem.doctor.checks import examine
    from tandem.doctor.facts import gather

    real = any(config.engine_of(role).backend is Backend.VLLM for role in Role if config.layout.workers(role))
    gateway = config.gateway
    addresses = ((gateway.host, gateway.port), (gateway.grpc_host, gateway.grpc_port))
    return [*examine(config, gather(addresses, nixl=real)), *_start(config)]


def _start(config: "TandemConfig") -> "Iterator[Finding]":
    """What else `tandem up` checks before it starts the first process, each by itself: there one fault hides the next.

    Engine and ports have findings of their own."""
    from proto.worker import Role
    from tandem.cli.up import require_tokenizer_of
    from tandem.doctor.checks import Finding, Verdict
    from tandem.supervisor import run_state
    from tandem.supervisor.plan import PlanError
    from tandem.supervisor.up import found, plan_of

    root = config.supervisor.run_dir
    why = run_state.obstacle(root)
    yield _fails("run_dir", why) if why else Finding("run_dir", Verdict.OK, f"{root} can be written")
    model = _model(config)
    if model is not None:
        yield model
    engines = [config.engine_of(role) for role in Role if config.layout.workers(role)]
    checks: dict[str, Callable[[], object]] = {
        "gateway.tls": lambda: options.need_tls_files(config.gateway.tls, "gateway.tls"),
        "worker.tls": lambda: options.need_tls_files(config.worker.tls, "worker.tls"),
        "tokenizer": lambda: require_tokenizer_of(config),
        "profile": lambda: require_profiles(engines),
        "faults": lambda: require_scripts(engines),
        "vocabulary": lambda: require_vocabularies(engines),
    }
    for what, check in checks.items():
        try:
            check()
        except CliError as error:
            yield _fails(what, str(error))
    whole = found(config) if model is not None and model.verdict is Verdict.OK else config
    try:
        workers = ", ".join(child.name for child in plan_of(_on_free_ports(whole)).workers)
        yield Finding("layout", Verdict.OK, f"this machine has room for {workers}")
    except PlanError as error:
        yield _fails("layout", str(error))


def _model(config: "TandemConfig") -> "Finding | None":
    """None where engines are simulated."""
    from engine.config import Backend
    from tandem.doctor.checks import Finding, Verdict
    from tandem.models import CATALOGUE, DEFAULT_MODEL, is_fetched
    from tandem.supervisor.plan import PlanError
    from tandem.supervisor.up import found

    if config.engine.backend is not Backend.VLLM:
        return None
    model = config.engine.model or DEFAULT_MODEL
    try:
        require_model(config)
        if model in CATALOGUE and not is_fetched(model):
            return Finding("model", Verdict.WARNING, f"{model} is not here yet", "tandem up makes it first")
        return Finding("model", Verdict.OK, found(config).engine.model)
    except (CliError, PlanError) as error:
        return _fails("model", str(error))


def _fails(what: str, problem: str) -> "Finding":
    """`problem`: cause and fix."""
    from tandem.doctor.checks import Finding, Verdict

    cause, _, fix = problem.partition("; ")
    return Finding(what, Verdict.FAILS, cause, fix)


def _on_free_ports(config: "TandemConfig") -> "TandemConfig":
    here = {"host": "127.0.0.1", "port": 0, "grpc_host": "127.0.0.1", "grpc_port": 0}
    return config.model_copy(update={"gateway": config.gateway.model_copy(update=here)})


def _show(findings: "list[Finding]") -> None:
    from rich.table import Table
    from rich.text import Text

    from tandem.cli.console import literal

    colours = {"ok": "green", "warning": "yellow", "fails": "red"}
    table = Table(box=None, pad_edge=False, show_header=False)
    for name in ("what", "verdict", "found"):
        table.add_column(name, no_wrap=name != "found", overflow="fold")
    for one in findings:
        table.add_row(one.what, Text(one.verdict, colours[one.verdict]), Text(one.found))
        if one.fix:
            table.add_row("", "", Text(f"→ {one.fix}"))
    literal().print(table)
