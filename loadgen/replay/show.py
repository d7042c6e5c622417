"""Replays side by side, as tables."""

from collections.abc import Callable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loadgen.replay.replay import Replayed, Tally


def render(replays: Sequence[Replayed], notes: Sequence[str]) -> RenderableType:
    parts: list[RenderableType] = [_totals(replays)]
    for title, of in (("class", _classes), ("tenant", _tenants)):
        if any(len(of(one)) > 1 for one in replays):
            parts += [Text(), _groups(title, replays, of)]
    return Group(*parts, Text(), *[Text(f"· {note}") for note in notes])


def _totals(replays: Sequence[Replayed]) -> Table:
    table = Table(box=None)
    table.add_column("")
    for one in replays:
        table.add_column(one.policy.name, justify="right")
    for name, values in _rows(replays):
        table.add_row(name, *values)
    return table


def _rows(replays: Sequence[Replayed]) -> Iterator[tuple[str, list[str]]]:
    """Name and one value a replay."""
    totals = [one.total for one in replays]
    yield "requests", [str(total.requests) for total in totals]
    yield "admitted", [_of(total.admitted, total) for total in totals]
    yield "  after waiting", [_of(total.queued, total) for total in totals]
    yield "refused", [_of(total.refusals, total) for total in totals]
    for reason in sorted({reason for total in totals for reason in total.refused}):
        yield f"  {reason}", [_of(total.refused.get(reason, 0), total) for total in totals]
    for why in sorted({why for total in totals for why in total.ended}):
        yield f"ended early: {why}", [_of(total.ended.get(why, 0), total) for total in totals]
    for level in ("p50", "p90", "p99"):
        yield f"wait {level} (s)", [_number(getattr(total.wait_s, level), 3) for total in totals]
    yield "TTFT p50 / p99 (ms)", [f"{_number(t.ttft_ms.p50)} / {_number(t.ttft_ms.p99)}" for t in totals]
    yield "TPOT p50 / p99 (ms)", [f"{_number(t.tpot_ms.p50, 1)} / {_number(t.tpot_ms.p99, 1)}" for t in totals]
    yield "preemptions", [str(one.preemptions) for one in replays]
    yield "recomputed tokens", [str(one.recomputed_tokens) for one in replays]


def _groups(title: str, replays: Sequence[Replayed], of: Callable[[Replayed], dict[str, Tally]]) -> Table:
    """One row a group and policy."""
    table = Table(box=None)
    for name in (title, "policy", "requests", "admitted", "waited", "refused", "wait p90 (s)", "reasons"):
        left = name in (title, "policy", "reasons")
        table.add_column(name, justify="left" if left else "right", overflow="fold" if left else "ellipsis")
    for group in sorted({name for one in replays for name in of(one)}):
        for one in replays:
            tally = of(one).get(group)
            if tally is None:
                continue
            reasons = ", ".join(f"{reason} {count}" for reason, count in tally.refused.items())
            table.add_row(
                group or "–",
                one.policy.name,
                str(tally.requests),
                str(tally.admitted),
                str(tally.queued),
                str(tally.refusals),
                _number(tally.wait_s.p90, 3),
                reasons,
            )
    return table


def _classes(one: Replayed) -> dict[str, Tally]:
    return dict(one.by_class)


def _tenants(one: Replayed) -> dict[str, Tally]:
    return dict(one.by_tenant)


def _of(count: int, tally: Tally) -> str:
    return f"{count} ({count / tally.requests:.1%})" if tally.requests else str(count)


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
