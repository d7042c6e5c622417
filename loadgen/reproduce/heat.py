"""The map as a picture: one panel a spread, one square a cell, coloured by the layout that wins."""

from collections.abc import Sequence
from html import escape

from loadgen.report.svg import PALETTE
from loadgen.reproduce.map import STEADY, Cell

_W, _H, _LEFT, _TOP, _GAP = 92, 46, 70, 58, 26

_STYLE = (
    "svg{font:12px system-ui,sans-serif}text{fill:#222}.dim{fill:#555;font-size:11px}.in{fill:#fff;font-size:11px}"
    ".cell{stroke:#fff;stroke-width:2}.like{fill:none;stroke:#000;stroke-width:3}"
    ".order{fill:none;stroke:#000;stroke-width:1.5;stroke-dasharray:4 3}"
)


def heat_map(title: str, cells: Sequence[Cell], layouts: Sequence[str]) -> str:
    """Standalone SVG. Solid frame: order and size of the published quotient; dashed: its order only."""
    means = sorted({c.mean for c in cells})
    batches = sorted({c.batch for c in cells}, key=lambda batch: batch or float("inf"))
    spreads = sorted({c.spread for c in cells})
    panel = _LEFT + len(means) * _W + _GAP
    width, height = panel * len(spreads), _TOP + len(batches) * _H + 70
    parts = [
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text x="8" y="18" font-weight="600">{escape(title)}</text>',
    ]
    for number, spread in enumerate(spreads):
        parts += _panel(number * panel, spread, means, batches, [c for c in cells if c.spread == spread], layouts)
    return "\n".join([*parts, *_legend(layouts, height - 14), "</svg>"])


def batch_name(batch: int) -> str:
    return "steady" if batch == STEADY else f"{batch:,}"


def _panel(
    x: int, spread: float, means: Sequence[float], batches: Sequence[int], cells: Sequence[Cell], layouts: Sequence[str]
) -> list[str]:
    bottom = _TOP + len(batches) * _H
    parts = [
        f'<text class="dim" x="{x + _LEFT}" y="{_TOP - 12}">coefficient of variation {spread:g}; batch upwards</text>'
    ]
    for row, batch in enumerate(reversed(batches)):
        y = _TOP + row * _H + _H / 2 + 4
        parts.append(f'<text class="dim" x="{x + _LEFT - 8}" y="{y}" text-anchor="end">{batch_name(batch)}</text>')
    for column, mean in enumerate(means):
        middle = x + _LEFT + column * _W + _W / 2
        parts.append(f'<text class="dim" x="{middle}" y="{bottom + 15}" text-anchor="middle">{mean:,.0f}</text>')
    parts.append(f'<text class="dim" x="{x + _LEFT}" y="{bottom + 31}">mean output, tokens</text>')
    for cell in cells:
        left = x + _LEFT + means.index(cell.mean) * _W
        parts += _cell(left, bottom - (batches.index(cell.batch) + 1) * _H, cell, layouts)
    return parts


def _cell(x: float, y: float, cell: Cell, layouts: Sequence[str]) -> list[str]:
    colour = PALETTE[layouts.index(cell.winner) % len(PALETTE)]
    box = f'x="{x}" y="{y}" width="{_W}" height="{_H}"'
    detail = ", ".join(f"{text} {seconds:,.0f} s" for text, seconds in cell.seconds.items())
    parts = [
        f'<rect class="cell" {box} fill="{colour}"><title>{escape(detail)}</title></rect>',
        f'<text class="in" x="{x + _W / 2}" y="{y + 20}" text-anchor="middle">{escape(cell.winner)}</text>',
        f'<text class="in" x="{x + _W / 2}" y="{y + 35}" text-anchor="middle">{cell.lead:.2f}x</text>',
    ]
    if cell.like_published or cell.order_as_published:
        frame = "like" if cell.like_published else "order"
        parts.append(f'<rect class="{frame}" x="{x + 3}" y="{y + 3}" width="{_W - 6}" height="{_H - 6}"/>')
    return parts


def _legend(layouts: Sequence[str], y: float) -> list[str]:
    parts = []
    for number, layout in enumerate(layouts):
        x = 8 + number * 84
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{PALETTE[number % len(PALETTE)]}"/>')
        parts.append(f'<text class="dim" x="{x + 17}" y="{y}">{escape(layout)}</text>')
    x = 8 + len(layouts) * 84
    parts.append(f'<text class="dim" x="{x}" y="{y}">framed: as published; dashed: order only</text>')
    return parts
