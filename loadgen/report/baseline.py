"""Regressions against an earlier summary, for CI."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.failure import LoadgenError


@dataclass(frozen=True, slots=True)
class Change:
    """`worse` when the figure moved the wrong way by more than the tolerance."""

    run: str
    figure: str
    before: float
    after: float
    worse: bool

    def __str__(self) -> str:
        relative = f"{(self.after - self.before) / self.before:+.1%}" if self.before else "from 0"
        return f"{self.run}: {self.figure} {self.before:.4g} -> {self.after:.4g} ({relative})"


#: Figure, path to it, and whether more is better.
_FIGURES: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("attainment", ("overall", "attainment"), True),
    ("good requests/s per GPU", ("goodput", "requests_ps_per_gpu"), True),
    ("good tokens/s per GPU", ("goodput", "output_tokens_ps_per_gpu"), True),
    *(
        (f"{metric} {p}, ms", ("overall", "latency_ms", metric, p), False)
        for metric in ("ttft", "tpot", "e2el")
        for p in ("p50", "p99")
    ),
)


def changes(before: Mapping[str, Any], after: Mapping[str, Any], tolerance: float) -> list[Change]:
    """Run by run, matched by arm, rate and repetition; and the highest rates of searches.

    A tolerance of 0.1 lets a figure get 10 % worse. Attainment is a share: there the tolerance is in points.
    """
    if not 0 <= tolerance < 1:
        raise LoadgenError(f"--tolerance {tolerance:g} is not a share between 0 and 1")
    old = {_key(r): r for r in before["runs"]}
    pairs = [(old[_key(r)], r) for r in after["runs"] if _key(r) in old]
    found = [change for a, b in pairs for change in _changes(a, b, tolerance)]
    found += _search_changes(before["searches"], after["searches"], tolerance)
    if not found:
        raise LoadgenError("baseline: the two summaries have no run in common (arm, rate and repetition)")
    return found


def _key(run: Mapping[str, Any]) -> tuple[str, float | None, int]:
    return run["arm"], run["rate"], run["repetition"]


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], tolerance: float) -> Iterator[Change]:
    name = f"{after['arm']}{'' if after['rate'] is None else ' {:g}/s'.format(after['rate'])}"
    if after["invalid"] and not before["invalid"]:
        yield Change(name, "validity", 1, 0, True)
    for figure, path, more in _FIGURES:
        a, b = _at(before, path), _at(after, path)
        if a is not None and b is not None:
            yield Change(name, figure, a, b, _worse(figure, a, b, more, tolerance))


def _worse(figure: str, before: float, after: float, more: bool, tolerance: float) -> bool:
    if figure == "attainment":
        return after < before - tolerance
    return after < before * (1 - tolerance) if more else after > before * (1 + tolerance)


def _at(run: Mapping[str, Any], path: Sequence[str]) -> float | None:
    value: Any = run
    for part in path:
        value = value[part]
    return None if value is None else float(value)


def _search_changes(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], tolerance: float
) -> list[Change]:
    old = {(s["arm"], a["goal"]): a["low"] or 0.0 for s in before for a in s["answers"]}
    return [
        Change(
            s["arm"],
            f"highest rate at {a['goal']:.0%}",
            was,
            a["low"] or 0.0,
            (a["low"] or 0.0) < was * (1 - tolerance),
        )
        for s in after
        for a in s["answers"]
        if (was := old.get((s["arm"], a["goal"]))) is not None
    ]
