"""Draws the worked example of docs/admission.md: what a worker is forecast to hold, against what it may hold.

python -m benchmarks.admission.picture docs/images/admission-forecast.svg
"""

import sys
from pathlib import Path

import numpy as np

from benchmarks.admission.example import BLOCKS, BUDGET, running, until_full
from gateway.policy.admission import Forecast
from loadgen.report.svg import Axis, Line, chart, standalone

TITLE = "KV of one worker: 24 answers under way, then 17 more"
LAST_STEP = 2_300.0


def lines() -> list[Line]:
    now, full = running().forecast(BUDGET), until_full().forecast(BUDGET)
    return [
        Line("mean, as it is", _points(now, now.mean), dashed=True, colour=0),
        Line("exceeded with chance 1 %, as it is", _points(now, now.high), colour=0),
        Line("mean, with 17 more", _points(full, full.mean), dashed=True, colour=1),
        Line("exceeded with chance 1 %, with 17 more", _points(full, full.high), colour=1),
    ]


def _points(forecast: Forecast, blocks: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> list[tuple[float, float]]:
    return [(step, held) for step, held in zip(forecast.steps, blocks, strict=True) if step <= LAST_STEP]


def picture() -> str:
    drawn = lines()
    marks = [(float(BLOCKS), "capacity"), (float(BLOCKS - BUDGET.pool_blocks), "less the emergency pool")]
    drawing = chart(TITLE, Axis("decode steps from now"), Axis("KV blocks", low=0.0), drawn, marks)
    return standalone(TITLE, drawing, [line.label for line in drawn])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture())
