"""The crossover as files: JSON, and two pictures."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from loadgen.plan.crossover.curve import Point
from loadgen.plan.crossover.session import Answer, Crossover
from loadgen.plan.crossover.variant import AS_TABULATED
from loadgen.report.svg import Axis, Line, chart, standalone

SCHEMA = "tandem-crossover/1"
#: A gain is drawn as far as this.
_MOST = 3.0


def save(folder: Path, found: Crossover) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("crossover.json", "crossover-gain.svg", "crossover-size.svg")]
    paths[0].write_bytes(orjson.dumps(document(found), option=orjson.OPT_INDENT_2))
    paths[1].write_text(gain_picture(found))
    paths[2].write_text(size_picture(found))
    return paths


def document(found: Crossover) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "figures": "model figures (fluid limit), nothing here was measured",
        "model": found.model,
        "billions": found.billions,
        "gpus": found.words.gpus,
        "prompts": "natural-reasoning",
        "spread_cv": found.words.spread,
        "max_num_seqs": found.words.max_num_seqs,
        "variants": [{"words": each.words, "remark": each.remark} for each in found.variants],
        "answers": [_answer(answer) for answer in found.answers],
        "checks": [
            {
                "left_out": check.task.without,
                "mean_output": check.task.setting.mean,
                "at_once": check.task.setting.at_once,
                "table": _point(check.table),
                "interpolated": _point(check.between),
            }
            for check in found.checks
        ],
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "variant": answer.task.variant.words,
        "mean_output": answer.task.setting.mean,
        "at_once": answer.task.setting.at_once,
        "crossing": {"billions": answer.crossing.billions, "bound": answer.crossing.bound},
        "here": _point(answer.here),
        "curve": [_point(point) for point in answer.points],
    }


def _point(point: Point) -> dict[str, Any]:
    """`gain` is null where one GPU does not hold the model."""
    gain = None if math.isinf(point.gain) else point.gain
    return asdict(point) | {"gain": gain, "best": point.best}


def gain_picture(found: Crossover) -> str:
    """How many times faster the best layout with TP is than replicas, over the size of the model."""
    lines = []
    for answer in found.of(AS_TABULATED):
        setting = answer.task.setting
        points = [(p.billions, min(p.gain, _MOST)) for p in answer.points]
        dashed = setting.at_once != found.words.at_once[-1]
        colour = list(found.words.outputs).index(setting.mean)
        lines.append(
            Line(f"mean output {setting.mean:,.0f}, {setting.at_once:,} at once", points, dashed=dashed, colour=colour)
        )
    title = f"Best layout with TP over replicas alone, {found.words.gpus} GPUs (model)"
    x = Axis("billions of parameters", log=True, low=5, high=100)
    drawn = chart(title, x, Axis("times as fast", low=0.5, high=_MOST), lines, [(1.0, "equally fast")])
    return standalone(title, drawn, [line.label for line in _last(lines, len(found.words.outputs))])


def size_picture(found: Crossover) -> str:
    """The size from which TP wins over the mean output, one line a variant."""
    at_once = found.words.at_once[-1]
    lines = []
    for variant in found.variants:
        answers = [a for a in found.of(variant) if a.task.setting.at_once == at_once]
        points = [(a.task.setting.mean, a.crossing.billions) for a in answers]
        lines.append(Line(variant.words, points, dots=True, dashed=variant != AS_TABULATED))
    title = f"Model size from which TP beats replicas, {at_once:,} at once (model)"
    x, y = Axis("mean output, tokens", log=True), Axis("billions of parameters", log=True, low=5, high=200)
    return standalone(title, chart(title, x, y, lines), [line.label for line in lines])


def _last(lines: Sequence[Line], count: int) -> Sequence[Line]:
    """A legend's lines, in the order of its colours."""
    return sorted(lines[-count:], key=lambda line: line.colour or 0)
