"""What a plan leaves in a folder: plan.json, pictures of goodput against other figures, layout.yaml."""

from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from loadgen.failure import LoadgenError
from loadgen.plan.candidate import Family
from loadgen.plan.document import costs, plan_document
from loadgen.plan.layout_document import layout_text
from loadgen.plan.plan import Planned
from loadgen.plan.ranking import Row
from loadgen.report.svg import Axis, Line, chart, standalone

_FRONT = "Pareto front: nobody is better at both"


def write_plan(planned: Planned, folder: Path) -> list[str]:
    """The lines to tell the user. The layout is left out, with a word, where its format cannot say the winner."""
    folder.mkdir(parents=True, exist_ok=True)
    told = []
    (folder / "plan.json").write_bytes(orjson.dumps(plan_document(planned), option=orjson.OPT_INDENT_2))
    told.append(f"plan: {folder / 'plan.json'}")
    for name, drawing in drawings(planned).items():
        (folder / name).write_text(drawing)
        told.append(f"plot: {folder / name}")
    winner = planned.winner
    comments = (
        f"Planned for {planned.asked.question.workload.name}; {'; '.join(planned.asked.question.policy.describe())}.",
        f"Model figure: {winner.rate:.4g} requests/s at {winner.goal:.0%} attainment on {winner.candidate.gpus} GPUs.",
        *((f"Cut short ({planned.incomplete}). {planned.verdict}",) if planned.incomplete else ()),
        "Real engines: add engine.model. Imitation: tandem up --config FILE --engine simulated",
    )
    try:
        (folder / "layout.yaml").write_text(layout_text(winner.candidate, comments))
        told.append(f"apply: tandem up --config {folder / 'layout.yaml'} --model DIR")
        told.append(f"imitate: tandem up --config {folder / 'layout.yaml'} --engine simulated")
    except LoadgenError as error:
        told.append(f"no layout document: {error}")
    return told


def drawings(planned: Planned) -> dict[str, str]:
    """Goodput per GPU against each latency's p99, and against the price where it is known."""
    made = {
        "ttft.svg": _drawing(planned, "TTFT p99, ms", lambda row: row.ttft_p99_ms),
        "tpot.svg": _drawing(planned, "TPOT p99, ms", lambda row: row.tpot_p99_ms),
    }
    if planned.asked.prices:
        made["price.svg"] = _drawing(
            planned, "price per 1,000 good requests", lambda row: costs(row, planned)["price_per_1000_good"]
        )
    return {name: drawing for name, drawing in made.items() if drawing}


def _drawing(planned: Planned, what: str, of: Callable[[Row], float | None]) -> str:
    lines: list[Line] = []
    points: list[tuple[float, float]] = []
    for row in sorted(planned.rows, key=lambda row: list(Family).index(row.candidate.family)):
        value = of(row)
        if value is not None:
            points.append((value, row.rate / row.candidate.gpus))
            colour = list(Family).index(row.candidate.family)
            lines.append(Line(row.candidate.label, points[-1:], dots=True, colour=colour))
    if not lines:
        return ""
    lines.append(Line(_FRONT, _front(points), dashed=True, colour=len(Family)))
    title = f"Goodput against {what} (model)"
    drawing = chart(title, Axis(what, low=0), Axis("requests/s per GPU at the goal", low=0), lines)
    return standalone(title, drawing, [*(family.value for family in Family), _FRONT])


def _front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """From the lowest value on, each that has more goodput than all before it."""
    front: list[tuple[float, float]] = []
    for value, rate in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or rate > front[-1][1]:
            front.append((value, rate))
    return front
