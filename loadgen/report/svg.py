"""Charts as SVG text: no script, no font, no network. Colours are CSS variables, so that they follow the page."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 14, 44
#: Above and, a row a line, below a chart that stands alone.
_TITLE, _ROW = 22, 18


@dataclass(frozen=True, slots=True)
class Line:
    """Points in data units; `low` and `high`, where given, are drawn as whiskers."""

    label: str
    points: Sequence[tuple[float, float]]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    dots: bool = False
    dashed: bool = False
    #: Place in the palette; by its place among the lines unless told.
    colour: int | None = None


@dataclass(frozen=True, slots=True)
class Axis:
    label: str
    log: bool = False
    low: float | None = None
    high: float | None = None
    percent: bool = False


def chart(title: str, x: Axis, y: Axis, lines: Sequence[Line], marks: Sequence[tuple[float, str]] = ()) -> str:
    """A line chart. `marks` are horizontal lines with a word, such as a goal or a limit."""
    xs = [p[0] for line in lines for p in line.points]
    ys = [p[1] for line in lines for p in line.points] + [m[0] for m in marks]
    ys += [v for line in lines for v in (*line.low, *line.high) if v is not None]
    if not xs:
        return ""
    place_x, ticks_x = _scale(x, xs, _LEFT, WIDTH - _RIGHT)
    place_y, ticks_y = _scale(y, ys, HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(title)}</title>",
        *_grid(x, y, ticks_x, ticks_y, place_x, place_y),
        *(part for value, word in marks for part in _mark(place_y(value), word)),
        *(part for i, line in enumerate(lines) for part in _line(i, line, place_x, place_y)),
        "</svg>",
    ]
    return "\n".join(parts)


def legend(labels: Sequence[str]) -> str:
    items = "".join(f'<li><i class="s{i % 8}"></i>{escape(label)}</li>' for i, label in enumerate(labels))
    return f'<ul class="legend">{items}</ul>'


Place = Callable[[float], float]


def _scale(axis: Axis, values: Sequence[float], start: float, stop: float) -> tuple[Place, list[float]]:
    low = min(values) if axis.low is None else axis.low
    high = max(values) if axis.high is None else axis.high
    if axis.log:
        ticks = _decades(max(low, 1e-3), max(high, 1e-3))
        first, span = math.log10(ticks[0]), math.log10(ticks[-1] / ticks[0])
        every = 1 if len(ticks) <= 8 else 3
        return (
            lambda v: start + (stop - start) * (math.log10(min(max(v, ticks[0]), ticks[-1])) - first) / span,
            [t for i, t in enumerate(ticks) if every == 1 or math.log10(t).is_integer() or i in (0, len(ticks) - 1)],
        )
    if high <= low:
        high = low + (abs(low) or 1)
    ticks = _nice(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    return lambda v: start + (stop - start) * (min(max(v, low), high) - low) / (high - low), ticks


def _decades(low: float, high: float) -> list[float]:
    """The steps 1, 2, 5, 10, … from just below to just above."""
    steps = [
        10.0**e * m for e in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2) for m in (1, 2, 5)
    ]
    below = max(i for i, step in enumerate(steps) if step <= low * 1.0001)
    above = min(i for i, step in enumerate(steps) if step >= high * 0.9999)
    return steps[below : max(above, below + 1) + 1]


def _nice(low: float, high: float, about: int = 5) -> list[float]:
    raw = (high - low) / about
    base = 10.0 ** math.floor(math.log10(raw))
    step = next(m * base for m in (1, 2, 2.5, 5, 10) if m * base >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def _grid(x: Axis, y: Axis, ticks_x: list[float], ticks_y: list[float], px: Place, py: Place) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for tick in ticks_y:
        at = py(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_word(tick, y)}</text>')
    for tick in ticks_x:
        at = px(tick)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{_word(tick, x)}</text>')
    middle_x, middle_y = (_LEFT + right) / 2, (_TOP + bottom) / 2
    parts.append(f'<text class="name" x="{middle_x}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x.label)}</text>')
    parts.append(
        f'<text class="name" transform="translate(13 {middle_y}) rotate(-90)" text-anchor="middle">{escape(y.label)}</text>'
    )
    return parts


def _word(value: float, axis: Axis) -> str:
    if axis.percent:
        return f"{value * 100:.3g}%"
    if value and abs(value) >= 10000:
        return f"{value / 1000:g}k"
    return f"{value:g}" if abs(value) < 1000 else f"{value:.0f}"


def _mark(at: float, word: str) -> list[str]:
    right = WIDTH - _RIGHT
    return [
        f'<line class="mark" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>',
        f'<text class="tick" x="{right - 3}" y="{at - 4:.1f}" text-anchor="end">{escape(word)}</text>',
    ]


def _line(number: int, line: Line, px: Place, py: Place) -> list[str]:
    colour = f"s{(number if line.colour is None else line.colour) % 8}"
    points = " ".join(f"{px(a):.1f},{py(b):.1f}" for a, b in line.points)
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    parts = [f'<polyline class="line {colour}"{dash} points="{points}"><title>{escape(line.label)}</title></polyline>']
    for (a, _), low, high in zip(line.points, line.low, line.high, strict=False):
        if low is not None and high is not None:
            at = px(a)
            parts.append(
                f'<line class="line {colour} thin" x1="{at:.1f}" x2="{at:.1f}" y1="{py(low):.1f}" y2="{py(high):.1f}"/>'
            )
    if line.dots:
        parts += [
            f'<circle class="dot {colour}" cx="{px(a):.1f}" cy="{py(b):.1f}" r="3.5">'
            f"<title>{escape(line.label)}: {a:g}, {b:g}</title></circle>"
            for a, b in line.points
        ]
    return parts


def standalone(title: str, svg: str, labels: Sequence[str]) -> str:
    """With its title, colours and, for several lines, legend inside, for a file of its own."""
    named = labels if len(labels) > 1 else ()
    height = _TITLE + HEIGHT + _ROW * len(named)
    whole = svg.replace(f'viewBox="0 0 {WIDTH} {HEIGHT}"', f'viewBox="0 {-_TITLE} {WIDTH} {height}"', 1)
    whole = whole.replace("</title>", f"</title>\n<style>{STYLE}{_COLOURS}</style>", 1)
    parts = [f'<text class="head" x="{_LEFT}" y="-6">{escape(title)}</text>']
    for i, label in enumerate(named):
        y = HEIGHT + _ROW * i
        parts.append(f'<circle class="dot s{i % 8}" cx="{_LEFT + 5}" cy="{y + 4}" r="5"/>')
        parts.append(f'<text class="name" x="{_LEFT + 18}" y="{y + 8}">{escape(label)}</text>')
    return whole.replace("</svg>", "\n".join([*parts, "</svg>"]))


STYLE = """
svg{font:12px system-ui,sans-serif}
.grid{stroke:var(--grid,#ddd);stroke-width:1}.mark{stroke:var(--mark,#b00);stroke-width:1;stroke-dasharray:2 3}
.tick{fill:var(--dim,#555);font-size:11px}.name{fill:var(--text,#222);font-size:12px}.head{fill:var(--text,#222);font-size:14px}
.line{fill:none;stroke-width:2.2;stroke-linejoin:round}.thin{stroke-width:1.2}.dot{stroke:none}
"""

#: Colour-blind safe (Okabe and Ito), in an order that keeps neighbours apart.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000")
_COLOURS = "".join(f".line.s{i}{{stroke:{c}}}.dot.s{i}{{fill:{c}}}" for i, c in enumerate(PALETTE))
COLOURS = _COLOURS + "".join(f"i.s{i}{{background:{c}}}" for i, c in enumerate(PALETTE))
