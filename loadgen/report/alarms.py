"""What a reader must know before any figure, said once for all runs that it concerns."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from loadgen.report.markup import name_of

Run = Mapping[str, Any]
_NUMBER = re.compile(r"\d[\d,.]*")


def alarms(runs: Sequence[Run]) -> str:
    """A list; what makes a run invalid comes first. Texts that differ in numbers alone count as one."""
    lines = [f"<li class='bad'>{escape(line)}</li>" for line in _merged(runs, "invalid", "INVALID, ")]
    lines += [f"<li>{escape(line)}</li>" for line in _merged(runs, "warnings", "")]
    return f"<ul class='alarms'>{''.join(lines)}</ul>" if lines else ""


def _merged(runs: Sequence[Run], member: str, mark: str) -> list[str]:
    found: dict[str, list[tuple[Run, str]]] = {}
    for run in runs:
        for text in run[member]:
            found.setdefault(_NUMBER.sub("#", text), []).append((run, text))
    return [_line(concerned, len(runs), mark) for concerned in found.values()]


def _line(concerned: Sequence[tuple[Run, str]], runs: int, mark: str) -> str:
    run, text = concerned[0]
    if len(concerned) == 1:
        return f"{name_of(run)}: {mark}{text}"
    also = "" if len({text for _, text in concerned}) == 1 else ", to take one"
    return f"{mark}{text} ({name_of(run)}{also}); so in {len(concerned)} of {runs} runs: {_where([r for r, _ in concerned])}"


def _where(runs: Sequence[Run]) -> str:
    """`pd at 2, 4/s; dp at 8/s`: arms with their rates, repetitions not told apart."""
    rates: dict[str, dict[str, None]] = {}
    for run in runs:
        rates.setdefault(run["arm"], {})["" if run["rate"] is None else f"{run['rate']:g}"] = None
    return "; ".join(arm if list(at) == [""] else f"{arm} at {', '.join(at)}/s" for arm, at in rates.items())
