"""Charts as PNG, for slides and documents that take no SVG. Needs the extra `report`."""

import re
from collections.abc import Sequence
from functools import cache

from loadgen.failure import LoadgenError
from loadgen.report.svg import standalone

#: Of 560 x 300 units: sharp on paper and on dense screens.
ZOOM = 3
_VARIABLE = re.compile(r"var\(--[a-z]+,(#[0-9a-f]+)\)")
_PROBE = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'


def png(title: str, svg: str, labels: Sequence[str]) -> bytes:
    """A chart on white. Raises LoadgenError where the renderer, or any font for it, is missing."""
    _need_renderer()
    return _render(
        _VARIABLE.sub(r"\1", standalone(title, svg, labels))
    )  # the renderer knows no variables; they have defaults


def _render(svg: str) -> bytes:
    from resvg_py import svg_to_bytes

    return svg_to_bytes(svg, background="#fff", zoom=ZOOM, sans_serif_family="DejaVu Sans")


@cache
def _need_renderer() -> None:
    try:
        import resvg_py  # noqa: F401
    except ImportError:
        raise LoadgenError("--png needs the extra `report`: pip install -e '.[report]'") from None
    if _render(_PROBE.format('<text y="15" font-family="sans-serif">M</text>')) == _render(_PROBE.format("")):
        raise LoadgenError(
            "--png found no font on this machine, so axes would have no words; install one (fonts-dejavu)"
        )
