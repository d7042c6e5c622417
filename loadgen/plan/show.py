"""A plan on the terminal."""

from math import isfinite

from rich.console import Console, JustifyMethod
from rich.table import Table

from loadgen.plan.difference import changes
from loadgen.plan.document import costs
from loadgen.plan.plan import Planned
from loadgen.plan.ranking import Row, best_at

_ROWS = 12
#: Columns of a terminal on which the names of layouts fit beside all figures.
_WIDE = 130
#: Letters of the longest word in the column of who is behind.
_BEHIND = len("difference")
#: How far layouts came, in words.
_STAGES = {
    "untried": "not reached",
    "bound": "ruled out by their bound",
    "floor": "given up after a run",
    "screen": "looked at shortly",
    "heat": "looked at for longer",
    "final": "looked at to the end",
}


def show_plan(planned: Planned, console: Console) -> None:
    question = planned.asked.question
    console.print(f"[bold]{planned.verdict}[/bold]")
    if planned.incomplete:
        console.print(f"[yellow]Cut short ({planned.incomplete}): what there is, is below.[/yellow]")
    wide = console.width >= _WIDE
    if not wide:
        for row in planned.rows[:_ROWS]:
            console.print(f"{row.place:>2}  {row.candidate.label}", highlight=False, markup=False)
    console.print(_ranking(planned, labels=wide))
    _goals(planned, console)
    rest = len(planned.rows) - _ROWS
    stages = ", ".join(f"{count} {_STAGES[name]}" for name, count in planned.stages().items() if count)
    began = f"{len(planned.standings)} of " if len(planned.standings) < len(planned.found) else ""
    console.print(f"{began}{len(planned.found)} layouts: {stages}" + (f"; {rest} more in the JSON" if rest > 0 else ""))
    for each in planned.dominated:
        console.print(f"· {each}", highlight=False)
    for candidate, found in planned.bottlenecks:
        where = f" ({found.where})" if found.where else ""
        console.print(f"\n[bold]{candidate.label}[/bold]: limited by [bold]{found.resource.value}[/bold]{where}")
        console.print(f"  at {found.rate:.4g}/s {found.evidence}", highlight=False)
    _running(planned, console)
    _what_ifs(planned, console)
    _worth(planned, console)
    _pareto(planned, console)
    cut = sum(row.cut for row in planned.rows)
    console.print(
        f"\nFigures of a model. Answers of declared length; runs of several residences of {question.residence_s:.3g} s, "
        f"requests of the fill-up and of the end not judged; {cut} of {sum(r.judged for r in planned.rows)} judged were "
        "cut at the client's time-out and count as bad. "
        f"{_prices(planned)}{planned.simulations} simulations, {planned.wall_s:.0f} s.",
        highlight=False,
    )


def _prices(planned: Planned) -> str:
    prices = dict(planned.asked.prices)
    each = ", ".join(f"{profile} {price:g}" for profile, price in prices.items())
    return f"Price of a GPU and hour: {each}. " if prices else ""


def _goals(planned: Planned, console: Console) -> None:
    """The best of each family at the goals that do not rank, where the order may be another; and where prices differ, the
    cheapest."""
    for goal in sorted(planned.asked.question.goals)[1:]:
        best = [
            f"{row.candidate.family.value} {_number(row.rates[goal], row.candidate.gpus)} ({row.candidate.label})"
            for row in best_at(planned.rows, goal)
        ]
        looked = any(goal in row.rates for row in planned.rows if row.stage is planned.winner.stage)
        none = "nothing held it" if looked else "not looked at in the time there was"
        console.print(f"At {goal:.0%}, /s/GPU: {', '.join(best) or none}", highlight=False)
    cheapest = planned.cheapest
    if cheapest is not None and cheapest is not planned.winner:
        money, most = (f"{1000 * (planned.price_per_good(row) or 0.0):.3g}" for row in (cheapest, planned.winner))
        console.print(
            f"Cheapest: {cheapest.candidate.label}, {money} for 1,000 good requests; the first one, {most}",
            highlight=False,
        )


def _ranking(planned: Planned, *, labels: bool) -> Table:
    """Without `labels` for a narrow terminal, below a list of them: beside the figures they would have no room."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    goals = sorted(planned.asked.question.goals)
    for name in ("", "layout", *(f"{goal:.0%}\n/s/GPU" for goal in goals), "95 %", "of\nbound", "bound\nby", "behind"):
        if name != "layout" or labels:
            justify: JustifyMethod = "left" if name == "layout" else "right"
            least = _BEHIND if name == "behind" else None
            table.add_column(name, justify=justify, no_wrap=name not in ("layout", "behind"), min_width=least)
    table.add_column("GPU·h\n/1k good", justify="right")
    priced = bool(planned.asked.prices)
    if priced:
        table.add_column("price\n/1k good", justify="right")
    for row in planned.rows[:_ROWS]:
        cost = costs(row, planned)
        cells = [str(row.place), *([row.candidate.label] if labels else [])]
        cells += [_number(row.rates.get(goal), row.candidate.gpus) for goal in goals]
        cells += [_interval(row), f"{row.share_of_bound:.0%}", row.bound_by.replace("_", " ")]
        cells.append(", ".join(filter(None, (_behind(row), _caveat(row, planned)))))
        cells.append(f"{cost['gpu_hours_per_1000_good']:.3g}")
        if priced:
            money = cost["price_per_1000_good"]
            cells.append("–" if money is None else f"{money:.3g}")
        table.add_row(*cells)
    return table


def _number(rate: float | None, gpus: int) -> str:
    return "–" if rate is None else f"{rate / gpus:.3g}"


def _interval(row: Row) -> str:
    spread = row.intervals[row.goal]
    if not isfinite(spread.low):
        return "one run"
    return f"{max(0.0, spread.low) / row.candidate.gpus:.3g}–{spread.high / row.candidate.gpus:.3g}"


def _behind(row: Row) -> str:
    return "" if row.behind is None else f"{row.behind:.1%}"


def _caveat(row: Row, planned: Planned) -> str:
    """Why the winner's lead over this one is none to build on."""
    if not row.compared:
        return "one run" if row.stage is planned.winner.stage else "by a shorter look"
    return "no difference shown" if row.tied else ""


def _running(planned: Planned, console: Console) -> None:
    if planned.asked.running is None:
        return
    row = planned.running
    if row is None:
        console.print("\nThe running layout does not hold the limits at any rate that was tried.")
    elif row is planned.winner:
        console.print("\nThe running layout is the best one found.")
    else:
        caveat = _caveat(row, planned)
        behind = f"{_behind(row)} behind" + (f" ({caveat})" if caveat else "")
        console.print(f"\nRunning now: {row.candidate.label}, place {row.place}, {behind}. To change:", highlight=False)
        for line in changes(row.candidate, planned.winner.candidate):
            console.print(f"  {line}", highlight=False)


def _what_ifs(planned: Planned, console: Console) -> None:
    for answered in planned.answered:
        winner = answered.winner
        if winner is None or winner.after is None:
            console.print(f"\nWhat if {answered.what_if.words}: none of the best layouts holds the limits.")
            continue
        old = max(c.before for c in answered.changed)
        same = winner.candidate == answered.winner_before
        console.print(
            f"\nWhat if {answered.what_if.words}: "
            + ("the same layout wins" if same else f"{winner.candidate.label} wins")
            + f", {winner.after / old:.2f} of the rate before ({answered.what_if.remark or 'as asked'})"
        )
        for each in answered.changed:
            now = "cannot serve" if each.after is None else f"{each.after:.4g}/s"
            console.print(f"  {each.candidate.label}: {each.before:.4g}/s -> {now}", highlight=False)


def _worth(planned: Planned, console: Console) -> None:
    """An hour: what each unit adds in good requests, and the price at which they cost as much as those there are."""
    if not planned.worth:
        return
    price = planned.asked.price(planned.winner.candidate)
    title = "What more would be worth to the winner" + ("" if price is None else f", which costs {price:.4g} an hour")
    table = Table(box=None, title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    heads = ("", "good/h\nfor each", "of its\nrate", "95 %", "" if price is None else "pays up to,\nan hour")
    for name in heads:
        table.add_column(name, justify="right" if name else "left")
    for each in planned.worth:
        low, high = each.share_95.low, each.share_95.high
        spread = f"{low:+.1%} to {high:+.1%}" if isfinite(low) else "one run"
        pays = "" if each.pays_up_to is None else f"{each.pays_up_to:.3g} a {each.unit}"
        gained = f"{_signed(each.good_ph_per_unit)} a {each.unit}"
        table.add_row(each.what, gained, f"{each.share:+.1%}", spread, pays if each.shown else "not shown")
    console.print()
    console.print(table)


def _signed(value: float) -> str:
    return f"{value:+,.0f}" if abs(value) >= 100 else f"{value:+.3g}"


def _pareto(planned: Planned, console: Console) -> None:
    table = Table(box=None, title="Pareto: nobody is better at all of these", title_justify="left")
    for name in ("layout", "/s/GPU", "TTFT p99 ms", "TPOT p99 ms"):
        table.add_column(name, justify="left" if name == "layout" else "right")
    for row in sorted(planned.front, key=lambda r: -r.rate)[:_ROWS]:
        ttft = "–" if row.ttft_p99_ms is None else f"{row.ttft_p99_ms:.0f}"
        tpot = "–" if row.tpot_p99_ms is None else f"{row.tpot_p99_ms:.1f}"
        table.add_row(row.candidate.label, f"{row.rate / row.candidate.gpus:.3g}", ttft, tpot)
    console.print()
    console.print(table)
