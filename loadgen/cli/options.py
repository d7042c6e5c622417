"""Options that several commands share, declared once."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from loadgen.arrivals.process import Kind, Ramp
from loadgen.client.target import Output, Prompts, Surface
from loadgen.measure.measures import MAX_SEND_LAG_MS
from loadgen.schedule import Sessions

Made = TypeVar("Made")


def with_options(**groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turns dataclass parameters of a command into their fields as options."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command)
        hints = get_type_hints(command, include_extras=True)
        parameters = [p.replace(annotation=hints[p.name]) for p in own.parameters.values() if p.name not in groups]
        for group in groups.values():
            parameters += _parameters(group)

        @wraps(command)
        def wrapper(**given: Any) -> None:
            made = {name: group(**{f.name: given.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
            command(**given, **made)

        wrapper.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it, the type of functions lacks it
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def _parameters(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    made = []
    for f in fields(group):
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        made.append(
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[f.name])
        )
    return made


def _option(*names: str, help: str, panel: str, metavar: str | None = None, least: int | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, min=least)


TargetWords = Annotated[
    str, typer.Argument(help="URL of any OpenAI-compatible endpoint, 'up:ARGUMENTS' of tandem up, or 'sim:…'.")
]
Gpus = Annotated[float | None, typer.Option("--gpus", help="GPUs behind the target.", rich_help_panel="SLO")]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Which requests come, and when."""

    workload: Annotated[
        list[str] | None,
        _option(
            "--workload",
            "-w",
            "--trace",
            help="NAME or FILE and KEY=VALUE words; repeat for a mix.",
            panel="Load",
            metavar="SPEC",
        ),
    ] = None
    requests: Annotated[
        int | None, _option("--requests", "-n", help="How many requests.", panel="Load", metavar="N")
    ] = None
    duration: Annotated[
        float | None, _option("--duration", "-d", help="For how long to send, seconds.", panel="Load", metavar="S")
    ] = None
    arrivals: Annotated[Kind, _option("--arrivals", help="Arrival process.", panel="Load")] = Kind.POISSON
    burstiness: Annotated[
        float,
        _option("--burstiness", help="Gamma shape: 1 is Poisson, below 1 burstier, inf a fixed gap.", panel="Load"),
    ] = 1.0
    ramp: Annotated[Ramp, _option("--ramp", help="Change of the rate over the run.", panel="Load")] = Ramp.NONE
    ramp_from: Annotated[
        float, _option("--ramp-from", help="Rate at the start of a ramp.", panel="Load", metavar="R")
    ] = 0.0
    time_scale: Annotated[
        float, _option("--time-scale", help="Replay this many times faster.", panel="Load", metavar="X")
    ] = 1.0
    concurrency: Annotated[int, _option("--concurrency", help="Of the closed loop.", panel="Load", metavar="N")] = 1
    sessions: Annotated[
        Sessions,
        _option("--sessions", help="fixed: absolute times for all turns; paced: turns wait for answers.", panel="Load"),
    ] = Sessions.FIXED
    storm: Annotated[
        list[str] | None,
        _option(
            "--storm", help="Extra correlated requests: 'NAME requests=N at=S within=S'.", panel="Load", metavar="SPEC"
        ),
    ] = None
    seed: Annotated[int, _option("--seed", help="Fixes times and lengths.", panel="Load", metavar="N", least=0)] = 0
    salt: Annotated[
        int | None,
        _option(
            "--salt",
            help="Fixes the words of the prompts; fresh by default, so that no prefix cache is met again.",
            panel="Load",
            metavar="N",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """What counts as good, and what it costs."""

    goodput: Annotated[
        list[str] | None,
        _option(
            "--goodput",
            help="Limits in ms, as vLLM's: 'ttft:200 tpot:20 e2el:5000 itl_p99:50'.",
            panel="SLO",
            metavar="LIMITS",
        ),
    ] = None
    goodput_class: Annotated[
        list[str] | None,
        _option("--goodput-class", help="Limits of one class: 'chat=ttft:100'.", panel="SLO", metavar="CLASS=LIMITS"),
    ] = None
    goodput_bucket: Annotated[
        list[str] | None,
        _option(
            "--goodput-bucket",
            help="Limits of one output length: '1001-5000=tpot:50'.",
            panel="SLO",
            metavar="BUCKET=LIMITS",
        ),
    ] = None
    slo: Annotated[
        str,
        _option(
            "--slo",
            help="A preset, such as distserve-chatbot-13b, mooncake-fast25-100, splitwise.",
            panel="SLO",
            metavar="PRESET",
        ),
    ] = ""
    reference: Annotated[
        int,
        _option(
            "--reference",
            help="Requests to run alone first, for slowdowns and the Splitwise form.",
            panel="SLO",
            metavar="N",
        ),
    ] = 0
    price: Annotated[
        str, _option("--price", help="Per GPU-hour: a number, or h200, h100, a100, l40s, cpu.", panel="SLO")
    ] = ""
    max_send_lag: Annotated[
        float, _option("--max-send-lag", help="p99 in ms above which a run is invalid.", panel="SLO", metavar="MS")
    ] = MAX_SEND_LAG_MS


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How requests are written and sent."""

    model: Annotated[
        str, _option("--model", help="The first served model by default.", panel="Client", metavar="NAME")
    ] = ""
    api: Annotated[Surface, _option("--api", help="Surface of the OpenAI API.", panel="Client")] = Surface.COMPLETIONS
    prompts: Annotated[Prompts, _option("--prompts", help="Prompts as text or as token ids.", panel="Client")] = (
        Prompts.TEXT
    )
    output: Annotated[
        Output,
        _option("--output", help="exact: planned lengths with ignore_eos; cap: max_tokens only.", panel="Client"),
    ] = Output.EXACT
    tokenizer: Annotated[
        str,
        _option(
            "--tokenizer",
            help="tokenizer.json or its folder; the target's /tokenize by default.",
            panel="Client",
            metavar="PATH",
        ),
    ] = ""
    api_key: Annotated[
        str,
        typer.Option(
            "--api-key",
            envvar=["LOADGEN_API_KEY", "OPENAI_API_KEY"],
            help="Sent as a bearer token.",
            rich_help_panel="Client",
            show_envvar=True,
        ),
    ] = ""
    header: Annotated[
        list[str] | None, _option("--header", help="'Name: value'; {tenant} and {class} are filled in.", panel="Client")
    ] = None
    body: Annotated[
        str, _option("--body", help="JSON object merged into every request body.", panel="Client", metavar="JSON")
    ] = ""
    processes: Annotated[
        int, _option("--processes", help="Load processes; by the rate by default.", panel="Client", metavar="N")
    ] = 0
    timeout: Annotated[float, _option("--timeout", help="Of one request, seconds.", panel="Client", metavar="S")] = (
        600.0
    )
    insecure: Annotated[bool, _option("--insecure", help="Accept any TLS certificate.", panel="Client")] = False


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What is written where."""

    out: Annotated[
        str,
        _option(
            "--out",
            "-o",
            help="Folder for summary.json, requests.jsonl, summary.csv and report.html.",
            panel="Output",
            metavar="DIR",
        ),
    ] = ""
    gaps: Annotated[bool, _option("--gaps", help="Every token gap in requests.jsonl.", panel="Output")] = False
    scenario: Annotated[
        list[str] | None,
        _option(
            "--scenario",
            help="A fact for the report: 'precision=bf16', 'node=8xH200'.",
            panel="Output",
            metavar="KEY=VALUE",
        ),
    ] = None
    quiet: Annotated[bool, _option("--quiet", "-q", help="No progress display.", panel="Output")] = False


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """Published results, simulated: no layout and no load are needed."""

    reproduce: Annotated[
        str,
        _option(
            "--reproduce",
            help="inference-scaling: published beside simulated, code 1 when a direction is missed. "
            "layout-map: which layout wins over lengths, spread and batch. "
            "pool-splits: split against colocated, beside DistServe, Splitwise and aiconfigurator.",
            panel="Reproduce",
            metavar="NAME",
        ),
    ] = ""
    jobs: Annotated[int, _option("--jobs", "-j", help="Processes.", panel="Reproduce", metavar="N")] = 1
    share: Annotated[
        float, _option("--share", help="Of every batch; below 1 for a quick look.", panel="Reproduce", metavar="X")
    ] = 1.0
    host_us: Annotated[
        float,
        _option(
            "--host-us",
            help="What if the engine's process took this long for each sequence of a step.",
            panel="Reproduce",
            metavar="US",
        ),
    ] = 0.0
    fine: Annotated[bool, _option("--fine", help="A finer map; hours.", panel="Reproduce")] = False
    quick: Annotated[
        bool, _option("--quick", help="Pool splits with one seed and wide brackets.", panel="Reproduce")
    ] = False
