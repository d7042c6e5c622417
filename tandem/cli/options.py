"""Options that several commands share, and how flags become a layer of the configuration."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem.cli.failure import CliError, Exit, config_errors

if TYPE_CHECKING:
    from proto.tls import TlsConfig
    from tandem.config import TandemConfig
    from tandem.setting import Setting

DEFAULT_ENDPOINT = "http://127.0.0.1:8000"

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="YAML or TOML document; see `tandem config show`."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting by its path, e.g. gateway.drain_s=5. Repeatable. KEY=null is its default again.",
    ),
]
Endpoint = Annotated[str, typer.Option(metavar="URL", envvar="TANDEM_ENDPOINT", help="Where the gateway listens.")]
ApiKey = Annotated[str, typer.Option(metavar="KEY", envvar="TANDEM_API_KEY", help="When the gateway asks for keys.")]

_ENGINE = "Engine"
Model = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="A model directory, or a name from `tandem models list`.",
        rich_help_panel=_ENGINE,
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", metavar="KIND", help="vllm (the default) or simulated.", rich_help_panel=_ENGINE),
]
ServedName = Annotated[
    str | None, typer.Option(metavar="NAME", help="What clients call the model.", rich_help_panel=_ENGINE)
]
Profile = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Simulated: hardware and model to imitate.", rich_help_panel=_ENGINE),
]
Speedup = Annotated[
    float | None, typer.Option(metavar="X", help="Simulated: times faster than real.", rich_help_panel=_ENGINE)
]
Dtype = Annotated[str | None, typer.Option(metavar="NAME", help="auto, float32, bfloat16.", rich_help_panel=_ENGINE)]
MaxModelLen = Annotated[
    int | None, typer.Option(metavar="N", help="Context window, in tokens.", rich_help_panel=_ENGINE)
]
MaxNumSeqs = Annotated[int | None, typer.Option(metavar="N", help="Sequences in one batch.", rich_help_panel=_ENGINE)]
BlockSize = Annotated[
    int | None, typer.Option("--block-size", metavar="N", help="Tokens in a KV block.", rich_help_panel=_ENGINE)
]
KvCacheGib = Annotated[
    float | None, typer.Option(metavar="GIB", help="KV space a rank, on CPUs.", rich_help_panel=_ENGINE)
]
GpuMemory = Annotated[
    float | None,
    typer.Option(
        "--gpu-memory-utilization", metavar="0..1", help="Share of GPU memory to use.", rich_help_panel=_ENGINE
    ),
]
PrefixCaching = Annotated[
    bool | None,
    typer.Option("--prefix-caching/--no-prefix-caching", help="On by default.", rich_help_panel=_ENGINE),
]
Link = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="How KV moves: auto, nvlink, rdma, shm, tcp.", rich_help_panel=_ENGINE),
]

TRAFFIC = "Traffic"
Workload = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        "-w",
        "--trace",
        metavar="SPEC",
        help="As loadgen's: a name or a trace file, KEY=VALUE words.",
        rich_help_panel=TRAFFIC,
    ),
]
ClientTimeout = Annotated[
    float, typer.Option("--timeout", metavar="S", help="Until a client gives up.", rich_help_panel=TRAFFIC)
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, rich_help_panel=TRAFFIC)]


def load_config(file: Path | None, flags: dict[str, Any], settings: Sequence[str] | None) -> "TandemConfig":
    """File, environment, flags, then --set. Raises CliError."""
    from tandem.config import load

    said: dict[str, Any] = {}
    parsed = [_parsed(setting, said) for setting in settings or ()]
    with config_errors():
        return load(file, flags, parsed)


def need_free_port(host: str, port: int, flag: str) -> None:
    """Found before an engine is loaded for half a minute. Raises CliError."""
    from tandem.supervisor import machine

    if why := machine.obstacle(host, 0):
        raise CliError(Exit.UNMET, f"cannot listen on {host}: {why}; choose an address of this machine")
    if port and (why := machine.obstacle(host, port)):
        raise CliError(Exit.UNMET, f"cannot listen on port {port} of {host}: {why}; choose another with {flag}")


def need_tls_files(tls: "TlsConfig | None", key: str) -> None:
    """Raises CliError."""
    if tls is not None and (why := tls.obstacle()):
        raise CliError(Exit.UNMET, f"{key}: {why}")


def need_addresses(addresses: Sequence[str] | None, flag: str) -> None:
    """An address without a port would be tried for ever. Raises CliError."""
    for address in addresses or ():
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise CliError(Exit.USAGE, f"{flag} {address}: expected HOST:PORT, for example 10.0.0.1:9100")


def _parsed(setting: str, said: dict[str, Any]) -> "Setting":
    """`said`: by those before it. Raises CliError."""
    import yaml

    from tandem.setting import Setting, deep_update

    path, split, text = setting.partition("=")
    if not split or not path:
        raise CliError(Exit.USAGE, f"--set {setting}: expected KEY=VALUE, for example gateway.drain_s=5")
    if not text.strip():  # would count as not set, and a key of nobody as none at all
        raise CliError(Exit.USAGE, f"--set {setting}: the value is missing; '\"\"' is an empty text")
    here: Any = said
    *sections, _ = parts = path.split(".")
    for section in sections:
        here = here.get(section) or {}
        if not isinstance(here, dict):
            raise CliError(Exit.USAGE, f"--set {setting}: {section} has been set to {here!r} before")
    try:
        parsed = Setting(tuple(parts), yaml.safe_load(text))
    except yaml.YAMLError:
        raise CliError(Exit.USAGE, f"--set {setting}: {text} is not a YAML value; quote it if it is a text") from None
    said.update(deep_update(said, parsed.nested))
    return parsed
