"""tandem policy replay"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tandem.cli import options
from tandem.cli.failure import CliError, Exit
from tandem.cli.policy_orders import at_one

_FLEET, _LOAD = "Fleet", "Load"


def replay(
    log: Annotated[
        str,
        typer.Argument(metavar="LOG", help="A folder of loadgen, a gateway's log, a trace, or words of a workload."),
    ],
    policy: Annotated[Path, typer.Option("--policy", metavar="FILE", help="The policy to try.")],
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="Another, side by side. Without it and with no --layout: the one in force.",
        ),
    ] = None,
    layout: Annotated[
        str,
        typer.Option(
            metavar="sim:WORDS", help="As loadgen simulate's; else a running gateway's.", rich_help_panel=_FLEET
        ),
    ] = "",
    profile: Annotated[
        str, typer.Option(metavar="DEVICE/MODEL", help="When its engines are real.", rich_help_panel=_FLEET)
    ] = "",
    endpoint: options.Endpoint = options.DEFAULT_ENDPOINT,
    api_key: options.ApiKey = "",
    run: Annotated[int, typer.Option(min=0, help="Which run of a requests.jsonl.", rich_help_panel=_LOAD)] = 0,
    rate: Annotated[
        float | None, typer.Option(min=0, help="Requests/s, where there are no times.", rich_help_panel=_LOAD)
    ] = None,
    requests: Annotated[int | None, typer.Option("--requests", "-n", min=1, rich_help_panel=_LOAD)] = None,
    duration: Annotated[
        float | None, typer.Option("--duration", "-d", metavar="S", min=0, rich_help_panel=_LOAD)
    ] = None,
    time_scale: Annotated[float, typer.Option(help="So many times faster.", rich_help_panel=_LOAD)] = 1.0,
    seed: Annotated[int, typer.Option(rich_help_panel=_LOAD)] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="The figures as JSON, too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of the tables.")] = False,
) -> None:
    """
    Show what a policy would have admitted, kept waiting and refused, in virtual time: figures of a model.

    Examples:

      tandem policy replay loadgen-results/DATE-run --policy new.yaml \\
        --against old.yaml \\
        --layout "sim:--profile h200-sxm/qwen3-32b --prefill 2 --decode 2"
      tandem policy replay .run/port-8000/gateway.log --policy new.yaml
    """
    from loadgen.failure import LoadgenError
    from loadgen.replay.log import Wanted

    policies = _policies(policy, against)
    wanted = Wanted(run, rate, requests, duration, time_scale, seed)
    try:
        words, in_force, left_out = _fleet(layout, profile, endpoint, api_key)
        if against is None and in_force is not None:
            policies.append(in_force)
        document = _replayed(log, wanted, words, policies, left_out, quiet=as_json)
    except LoadgenError as error:
        raise CliError(Exit.USAGE, str(error)) from None
    text = json.dumps(document, indent=2)
    if as_json:
        typer.echo(text)
    if out is not None:
        try:
            out.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise CliError(Exit.FAILED, f"cannot write {out}: {error.strerror}") from None


def _policies(policy: Path, against: Path | None) -> list[Any]:
    from tandem.cli.policy import loaded

    return [loaded(file) for file in (policy, against) if file is not None]


def _fleet(layout: str, profile: str, endpoint: str, api_key: str) -> tuple[str, Any, list[str]]:
    """Words of the layout; with a running gateway, the policy in force as well, and what of it is not replayed."""
    if layout:
        return layout.removeprefix("sim:"), None, []
    from gateway.policy_versions.document import policy_of
    from loadgen.replay.fleet import words_of

    status = at_one(endpoint, api_key, lambda gateway: gateway.status())
    in_force = at_one(endpoint, api_key, lambda gateway: gateway.policy())
    fluid = (status.get("policy") or {}).get("roles") is not None
    left_out = (
        ["the gateway's roles are fluid, the replay's fixed: --layout \"sim:… --fluid TTFT:TPOT\""] if fluid else []
    )
    return words_of(status, profile), policy_of(in_force["settings"]), left_out


def _replayed(
    log: str, wanted: Any, words: str, policies: list[Any], left_out: list[str], *, quiet: bool
) -> dict[str, Any]:
    from loadgen.replay.log import read
    from loadgen.replay.replay import replay
    from loadgen.replay.show import render
    from loadgen.simulate.words import parse_layout
    from tandem.cli.console import literal

    layout, recorded = parse_layout(words), read(log, wanted)
    replays = [replay(recorded.schedule, layout, policy) for policy in policies]
    notes = [
        f"virtual time, figures of a model; fleet: {layout.description}",
        *left_out,
        *recorded.notes,
        "the length model starts from the policy's prior; clients declare their answers' lengths"
        if layout.declared.value == "exact"
        else "the length model starts from the policy's prior; clients declare nothing",
    ]
    if not quiet:
        literal().print(render(replays, notes))
    return {
        "schema": "tandem-policy-replay/1",
        "log": log,
        "layout": layout.description,
        "requests": len(recorded.schedule.requests),
        "digest": recorded.schedule.digest,
        "notes": notes,
        "policies": [one.document() for one in replays],
    }
