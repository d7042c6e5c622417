"""tandem policy: the document, and its life in running gateways."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem.cli import options, policy_replay
from tandem.cli.failure import CliError, Exit, config_errors, warn
from tandem.cli.policy_orders import at_all, at_one

if TYPE_CHECKING:
    from gateway.policy_config import PolicyConfig

_HELP = """
Check, change, replay and try out the policy of admission and fairness.

Examples:

  tandem policy show > policy.yaml
  tandem policy check policy.yaml
  tandem policy apply policy.yaml --note "chat first, ticket 4711"
"""

app = typer.Typer(help=_HELP, no_args_is_help=True)

app.command("replay")(policy_replay.replay)

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="YAML, TOML or JSON: a policy, or a configuration with gateway.policy.")
]
Endpoints = Annotated[
    list[str],
    typer.Option("--endpoint", metavar="URL", envvar="TANDEM_ENDPOINT", help="A gateway. Repeat for every replica."),
]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Why; kept in the history.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
ALONE = [options.DEFAULT_ENDPOINT]


@app.command("check")
def check(file: File) -> None:
    """
    Check a document without any gateway; every problem is named with its path.

    Example: tandem policy check policy.yaml
    """
    typer.echo(f"{file} is valid: policy {loaded(file).name}")


@app.command("schema")
def schema() -> None:
    """
    Print the JSON schema of the document, for editors and other tools.

    Example: tandem policy schema > policy-schema.json
    """
    from tandem.policy_document import schema_text

    typer.echo(schema_text(), nl=False)


@app.command("show")
def show(
    as_json: AsJson = False, endpoint: options.Endpoint = options.DEFAULT_ENDPOINT, api_key: options.ApiKey = ""
) -> None:
    """
    Print the policy that a running gateway uses, as a document that `check` and `apply` take.

    Example: tandem policy show > policy.yaml
    """
    import yaml

    document = at_one(endpoint, api_key, lambda gateway: gateway.policy())
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    who = document.get("by") or "anyone"
    typer.echo(f"# policy {document['policy']}, {document.get('action')} at {document.get('since')} by {who}")
    if canary := document.get("canary"):
        typer.echo(f"# canary: {canary['policy']} for {canary['share']:.1%} of the requests")
    typer.echo(yaml.safe_dump(document["settings"], sort_keys=False, allow_unicode=True), nl=False)


@app.command("apply")
def apply(
    file: File, note: Note = "", as_json: AsJson = False, endpoint: Endpoints = ALONE, api_key: options.ApiKey = ""
) -> None:
    """
    Put a policy in force at running gateways: at all of them as a whole, or at none.

    Examples:

      tandem policy apply policy.yaml --note "chat first, ticket 4711"
      tandem policy apply policy.yaml --endpoint http://gw-1:8000 \\
        --endpoint http://gw-2:8000
    """
    settings = loaded(file).model_dump(mode="json", exclude_unset=True)
    replies = at_all(endpoint, api_key, "PUT", "", {"settings": settings, "note": note}, check=settings)
    _tell(replies, as_json)


@app.command("rollback")
def rollback(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="From `history`; without it the one before.")] = "",
    note: Note = "",
    as_json: AsJson = False,
    endpoint: Endpoints = ALONE,
    api_key: options.ApiKey = "",
) -> None:
    """
    Go back to the policy before, or to any one that the history knows.

    Called again it goes back further; what it has taken away comes back by its
    name alone.

    Example: tandem policy rollback --note "more refusals than before"
    """
    _tell(at_all(endpoint, api_key, "POST", "rollback", {"version": version, "note": note}), as_json)


@app.command("history")
def history(
    as_json: AsJson = False, endpoint: options.Endpoint = options.DEFAULT_ENDPOINT, api_key: options.ApiKey = ""
) -> None:
    """
    Print which policies were in force, newest first: when, by whom, and why.

    Example: tandem policy history
    """
    from tandem.cli.console import literal
    from tandem.cli.policy_tables import history_lines
    from tandem.printable import printable_document

    document = at_one(endpoint, api_key, lambda gateway: gateway.policy("history"))
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    console = literal()
    for line in history_lines(printable_document(document["changes"])):
        console.print(line)
    console.print(f"kept in {document['file']}" if document.get("file") else "kept in memory only")


@app.command("canary")
def canary(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The policy to try out.")] = None,
    share: Annotated[float | None, typer.Option(metavar="X", help="Of the requests, such as 0.05.")] = None,
    abort_refused: Annotated[
        float | None,
        typer.Option(metavar="X", help="End it by itself when it refuses so much more, as a share: 0.02."),
    ] = None,
    abort_ttft: Annotated[
        float | None,
        typer.Option(metavar="F", help="... or when its p90 of TTFT is so many times the other's: 1.5."),
    ] = None,
    least: Annotated[int, typer.Option(metavar="N", help="... but not before both have had N requests.")] = 50,
    status: Annotated[bool, typer.Option("--status", help="What became of each version's requests so far.")] = False,
    note: Note = "",
    as_json: AsJson = False,
    endpoint: Endpoints = ALONE,
    api_key: options.ApiKey = "",
) -> None:
    """
    Try a policy out on a share of the requests, beside the one in force; then promote or abort it.

    Examples:

      tandem policy canary new.yaml --share 0.05 --abort-refused 0.02 \\
        --abort-ttft 1.5
      tandem policy canary --status
    """
    if status == (file is not None) or (status and share is not None):
        raise CliError(Exit.USAGE, "give a FILE and --share to begin, or --status alone")
    if status:
        _compare(endpoint, api_key, as_json)
        return
    assert file is not None
    if share is None or not 0 < share < 1:
        raise CliError(Exit.USAGE, "--share must lie between 0 and 1, for example 0.05")
    if not 0 <= (abort_refused or 0) < 1 or not 1 <= (abort_ttft or 1) < float("inf") or least < 1:
        raise CliError(
            Exit.USAGE, "--abort-refused is a share below 1, --abort-ttft a factor of at least 1, --least above 0"
        )
    settings = loaded(file).model_dump(mode="json", exclude_unset=True)
    guard = {"refused": abort_refused, "ttft": abort_ttft, "least": least}
    body = {"settings": settings, "share": share, "note": note, "guard": guard}
    replies = at_all(endpoint, api_key, "PUT", "canary", body, check=settings, undo="canary/abort")
    if as_json:
        typer.echo(json.dumps(replies, indent=2))
        return
    for url, reply in replies.items():
        typer.echo(f"{url}: {share:.1%} of the requests are decided by {reply['policy']}: {', '.join(reply['tried'])}")
        if reply["not_tried"]:
            warn(f"not tried, because all requests share it: {', '.join(reply['not_tried'])}")


@app.command("promote")
def promote(
    note: Note = "", as_json: AsJson = False, endpoint: Endpoints = ALONE, api_key: options.ApiKey = ""
) -> None:
    """
    Put the policy on trial in force, all of it and for all requests.

    Example: tandem policy promote --note "a day without harm"
    """
    _tell(at_all(endpoint, api_key, "POST", "canary/promote", {"note": note}), as_json)


@app.command("abort")
def abort(note: Note = "", as_json: AsJson = False, endpoint: Endpoints = ALONE, api_key: options.ApiKey = "") -> None:
    """
    End the trial: the policy in force decides all requests again.

    Example: tandem policy abort --note "more refusals than before"
    """
    replies = at_all(endpoint, api_key, "POST", "canary/abort", {"note": note}, undo="")
    if as_json:
        typer.echo(json.dumps(replies, indent=2))
        return
    for url, reply in replies.items():
        typer.echo(f"{url}: the trial of {reply['policy']} is over")


def _compare(endpoints: list[str], api_key: str, as_json: bool) -> None:
    documents = {url: at_one(url, api_key, lambda gateway: gateway.policy("canary")) for url in endpoints}
    if as_json:
        typer.echo(json.dumps(documents, indent=2))
        return
    from tandem.cli.console import literal
    from tandem.cli.policy_tables import compared

    for url, document in documents.items():
        literal().print(compared(url, document))


def loaded(file: Path) -> "PolicyConfig":
    """Raises CliError with every problem of the document."""
    from tandem.policy_document import load_policy

    with config_errors():
        return load_policy(file)


def _tell(replies: dict[str, dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(replies, indent=2))
        return
    for url, reply in replies.items():
        before, after, differences = reply["before"], reply["policy"], reply["differences"]
        for warning in reply.get("warnings", ()):
            warn(warning)
        if not differences and before == after:
            typer.echo(f"{url}: policy {after} was in force already")
            continue
        typer.echo(f"{url}: policy {after} in place of {before}")
        for each in differences:
            typer.echo(f"  {each['path']}: {_change(each['before'], each['after'])}")


def _change(before: Any, after: Any) -> str:
    """Of a class or a tenant that one side alone has, a gateway says `present` and null."""
    match before, after:
        case None, "present":
            return "added"
        case "present", None:
            return "removed"
    return f"{_value(before)} -> {_value(after)}"


def _value(value: Any) -> str:
    return "-" if value is None else json.dumps(value)
