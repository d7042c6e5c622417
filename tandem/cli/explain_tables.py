"""One decision of a gateway as text and tables."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.wording import counted
from tandem.units import number

_WHAT_LOAD = "load: first token, step and room taken, each against its aim; the way with the least was taken"


def render(decision: Mapping[str, Any]) -> RenderableType:
    """`decision` is one prompt of GET /tandem/v1/decisions/{id}."""
    return Group(*_head(decision), *[part for look in decision["looks"] for part in _look(look)], *_end(decision))


def render_error(request_id: str, error: Mapping[str, Any]) -> RenderableType:
    """`error` of GET /tandem/v1/decisions/{id}: how the request ended, if not well."""
    param = f" (`{error['param']}`)" if error["param"] else ""
    lines = [
        f"{_where(request_id, error)}, {error['age_s']:.1f} s ago",
        f"  {error['status']} {error['code']}{param}: {error['message']}",
    ]
    if error["numbers"]:
        lines.append("  " + ", ".join(f"{name} {number(value)}" for name, value in error["numbers"].items()))
    return Group(*map(Text, lines))


def _where(request_id: str, error: Mapping[str, Any]) -> str:
    if error["phase"] == "received":
        return f"{request_id}: refused before the policy looked at it"
    return f"{request_id}: ended while {error['phase'].replace('_', ' ')}"


def _head(decision: Mapping[str, Any]) -> Iterator[RenderableType]:
    estimate, need = decision["estimate"], decision["need"]
    yield Text(
        f"{decision['request_id']}: class {decision['klass']}, policy {decision['policy']} ({decision['rule']}), "
        f"{decision['age_s']:.1f} s ago"
    )
    yield Text(
        f"prompt {counted(decision['prompt_tokens'], 'token')}, {counted(decision['answers'], 'answer')} of at most "
        f"{decision['limit_tokens']:,}; expected {estimate['mean']:,.0f} (half {estimate['p50']:,.0f}, "
        f"90 % {estimate['p90']:,.0f}, 99 % {estimate['p99']:,.0f}); {_taken(need)}"
    )


def _taken(need: Mapping[str, Any]) -> str:
    if need["likely_tokens"]:
        tokens = counted(need["likely_tokens"], "token")
        return f"its KV counts as the prompt and {tokens}: at the worst step, what it has by then times the chance that it runs"
    return f"its KV is reserved in full: the prompt and {counted(need['growth_tokens'], 'token')}"


def _look(look: Mapping[str, Any]) -> Iterator[RenderableType]:
    parts = [look["what"], look["worker_id"], f"({look['why']})" if look["why"] else ""]
    numbers = ", ".join(f"{name} {number(value)}" for name, value in look["numbers"].items())
    line = f"{look['at_s']:8.3f} s  {' '.join(part for part in parts if part)}"
    yield Text(f"{line}; {numbers}" if numbers else line)
    if look.get("ways"):
        yield _ways(look["ways"])
        yield Text(_WHAT_LOAD, "dim")
    if look["candidates"]:
        table = Table(box=None, pad_edge=True)
        for column in ("candidate", "verdict", "path", "score", "blocks left", "cached"):
            table.add_column(column, justify="left" if column in ("candidate", "verdict", "path") else "right")
        for one in look["candidates"]:
            table.add_row(
                one["worker_id"],
                one["verdict"],
                one["path"] or "–",
                f"{one['score']:.3f}",
                f"{one['free_after_blocks']:g}",
                str(one["cached_tokens"]),
            )
        yield table


def _ways(ways: list[Mapping[str, Any]]) -> Table:
    """What the role policy weighed; the first was taken. `handed` says after how many tokens."""
    table = Table(box=None, pad_edge=True)
    for column in ("computed by", "decoded by", "handed", "load", "first token", "step", "room taken"):
        table.add_column(column, justify="left" if column.endswith("by") else "right")
    for way in ways:
        table.add_row(
            way["computed_by"],
            way["worker_id"],
            f"after {way['first_tokens']}" if way["first_tokens"] else "–",
            f"{way['load']:.3g}",
            f"{1000 * way['first_token_s']:.0f} ms",
            f"{1000 * way['step_s']:.1f} ms",
            f"{100 * way['room_share']:.1f} %",
        )
    return table


def _end(decision: Mapping[str, Any]) -> Iterator[RenderableType]:
    for answer in decision["answered"]:
        yield Text(f"answered with {counted(answer['tokens'], 'token')}, ended by {answer['finished_by']}")
