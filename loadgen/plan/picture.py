"""Which layout for which traffic: the plans of several kinds of traffic in one picture.

python -m loadgen.plan.picture code/plan.json conv/plan.json > decision.svg
"""

import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import orjson

from loadgen.plan.candidate import Family
from loadgen.plan.document import SCHEMA
from loadgen.report.svg import PALETTE

_WIDTH, _LEFT, _BAR, _ROW, _TOP = 860, 200, 560, 22, 44
#: Of the verdict: how far apart its lines are, and how long.
_LINE, _LETTERS = 14, 100
_STYLE = (
    "svg{font:12px system-ui,sans-serif}text{fill:#222}.dim{fill:#555;font-size:11px}.in{fill:#fff;font-size:11px}"
    ".head{font-weight:600}"
)

Plan = Mapping[str, Any]


def decision(plans: Sequence[Plan]) -> str:
    """Standalone SVG: for each plan the best layout of each family, as a share of the winner's requests/s per GPU."""
    group = (len(Family) + 2) * _ROW + _LINE
    title = "Best layout of each kind, requests/s per GPU at the goal (model figures)"
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_TOP + group * len(plans)}" role="img" aria-label="{escape(title)}"'
        ' xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text class="head" x="8" y="20">{escape(title)}</text>',
    ]
    for number, plan in enumerate(plans):
        parts += _traffic(_TOP + number * group, plan)
    return "\n".join([*parts, "</svg>", ""])


def _traffic(top: int, plan: Plan) -> list[str]:
    asked, best = plan["asked"], plan["ranking"][0]
    goal = min(best["rate_ps_per_gpu"], key=float)
    limits = "; ".join(asked["slo"])
    parts = [
        f'<text class="head" x="8" y="{top}">{escape(asked["workload"])}</text>',
        f'<text class="dim" x="{_LEFT}" y="{top}">{escape(limits)}; {float(goal):.0%} good</text>',
    ]
    for row, family in enumerate(Family):
        y = top + 8 + row * _ROW
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{family.value}</text>')
        parts += _bar(y, family, plan["ranking"], goal, best["rate_ps_per_gpu"][goal])
    for row, line in enumerate(wrap(plan["verdict"], _LETTERS)):
        y = top + 8 + len(Family) * _ROW + 13 + row * _LINE
        parts.append(f'<text class="dim" x="{_LEFT}" y="{y}">{escape(line)}</text>')
    return parts


def _bar(y: int, family: Family, ranking: Sequence[Plan], goal: str, most: float) -> list[str]:
    """The first of its family: those that came farther stand first, whatever shorter runs said of others."""
    found = next((row for row in ranking if row["family"] == family.value), None)
    if found is None:
        return [f'<text class="dim" x="{_LEFT}" y="{y + 14}">none measured: given up below the others</text>']
    rate = found["rate_ps_per_gpu"][goal]
    colour = PALETTE[list(Family).index(family)]
    label = f"{rate:.3g}   {found['layout']}"
    width = _BAR * min(1.0, rate / most)
    inside = width > 7 * len(label)
    place = f'class="in" x="{_LEFT + 6}"' if inside else f'x="{_LEFT + width + 6:.0f}"'
    return [
        f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="{_ROW - 4}" fill="{colour}"/>',
        f'<text {place} y="{y + 13}">{escape(label)}</text>',
    ]


def main(paths: Sequence[str]) -> int:
    plans = [orjson.loads(Path(path).read_bytes()) for path in paths]
    foreign = [path for path, plan in zip(paths, plans, strict=True) if plan.get("schema") != SCHEMA]
    if foreign or not plans:
        print(f"error: {', '.join(foreign) or 'nothing'} is not a plan.json of tandem plan", file=sys.stderr)
        return 2
    sys.stdout.write(decision(plans))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
