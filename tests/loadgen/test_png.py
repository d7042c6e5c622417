"""Charts as pictures."""

import struct
import sys
from pathlib import Path

import pytest

from loadgen.failure import LoadgenError
from loadgen.report import png as module
from loadgen.report.png import ZOOM, png
from loadgen.report.svg import Axis, Line, chart

SVG = chart("t", Axis("x"), Axis("y"), [Line("a", [(0, 1), (1, 2)])])


def test_a_chart_becomes_a_sharp_png() -> None:
    one, two = png("t", SVG, ["a"]), png("t", SVG, ["a", "b"])
    assert one.startswith(b"\x89PNG")
    sizes = [struct.unpack(">II", picture[16:24]) for picture in (one, two)]
    assert [size[0] for size in sizes] == [560 * ZOOM] * 2
    assert sizes[0][1] < sizes[1][1], "a legend needs room"


def test_a_missing_renderer_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    module._need_renderer.cache_clear()
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(LoadgenError, match=r"the extra `report`: pip install -e '\.\[report\]'"):
        png("t", SVG, ["a"])


def test_a_machine_without_fonts_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module._need_renderer.cache_clear()
    monkeypatch.setattr(module, "_render", lambda svg: b"same")
    with pytest.raises(LoadgenError, match="no font"):
        png("t", SVG, ["a"])
    module._need_renderer.cache_clear()
