"""Mitigations one at a time (R-69): an arm `base`, arms `+x` that add one thing to it, and `+x+y` that add several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from loadgen.report.markup import interval, number, section, share, table

BASE = "base"


@dataclass(frozen=True, slots=True)
class Ablation:
    """`alone` has one switch each, `together` several; names are of arms."""

    switches: tuple[str, ...]
    alone: tuple[str, ...]
    together: tuple[str, ...]

    @property
    def gaps(self) -> list[str]:
        """What is missing of baseline, each alone, all together."""
        never = [s for s in self.switches if f"+{s}" not in self.alone]
        whole = any(set(_switches(arm)) == set(self.switches) for arm in self.together)
        lines = [f"not run alone: {', '.join(never)}"] if never else []
        if len(self.switches) > 1 and not whole:
            lines.append(f"not run: all together (+{'+'.join(self.switches)})")
        return lines


def ablation_of(arms: Sequence[str]) -> Ablation | None:
    """None where there is no baseline, or nothing was added to it."""
    added = [arm for arm in arms if arm.startswith("+") and all(_switches(arm))]
    if BASE not in arms or not added:
        return None
    switches = tuple(dict.fromkeys(s for arm in added for s in _switches(arm)))
    alone = tuple(arm for arm in added if len(_switches(arm)) == 1)
    return Ablation(switches, alone, tuple(arm for arm in added if arm not in alone))


def _switches(arm: str) -> list[str]:
    return arm[1:].split("+")


def ablation(comparison: Mapping[str, Any]) -> str:
    """The section of the page, one table for all rates; "" for a comparison that is none."""
    found = ablation_of([arm["name"] for arm in comparison["arms"]])
    if found is None:
        return ""
    cells = [cell for cell in comparison["cells"] if not cell["class"]]
    rows = [
        row
        for rate in dict.fromkeys(cell["rate"] for cell in cells)
        for row in _rows(found, {c["arm"]: c for c in cells if c["rate"] == rate}, comparison["contests"])
    ]
    head = ["arm", "req/s", "good/s/GPU", "against base", "difference, 95 %", "attained", "shown"]
    gaps = "".join(f"<p><b>{gap}</b></p>" for gap in map(escape, found.gaps))
    note = (
        "<p class='dim'>Sum of the parts: what the single additions gain, added up. Where all together gains less, they "
        "help against the same trouble; a claim for one of them holds only beside what was on with it.</p>"
    )
    return section("One mitigation at a time", table(head, rows), gaps, note if len(found.alone) > 1 else "")


def _rows(
    found: Ablation, cells: Mapping[str, Mapping[str, Any]], contests: Sequence[Mapping[str, Any]]
) -> list[Sequence[str]]:
    base = cells.get(BASE)
    if base is None:
        return []
    against = {c["arm"]: c for c in contests if c["against"] == BASE and not c["class"] and c["rate"] == base["rate"]}
    rows: list[Sequence[str]] = [_row(base, None, None)]
    gains = []
    for arm in found.alone:
        if arm in cells:
            gains.append(cells[arm]["good_per_gpu"] - base["good_per_gpu"])
            rows.append(_row(cells[arm], base, against.get(arm)))
    if len(gains) > 1:
        rows.append(("sum of the parts", "", "", f"{sum(gains):+.3f}", "", "", ""))
    rows += [_row(cells[arm], base, against.get(arm)) for arm in found.together if arm in cells]
    return rows


def _row(cell: Mapping[str, Any], base: Mapping[str, Any] | None, contest: Mapping[str, Any] | None) -> Sequence[str]:
    rate = "–" if cell["rate"] is None else f"{cell['rate']:g}"
    difference = "" if base is None else f"{cell['good_per_gpu'] - base['good_per_gpu']:+.3f}"
    return (
        cell["arm"],
        rate,
        number(cell["good_per_gpu"], 3),
        difference,
        "" if base is None else "unknown" if contest is None else interval(contest["difference"], 3),
        share(cell["attainment"]),
        "" if base is None else _shown(contest),
    )


def _shown(contest: Mapping[str, Any] | None) -> str:
    if contest is None:
        return "base was not the first arm"
    if not contest["valid"]:
        return "invalid run"
    if not contest["winner"]:
        return "no difference shown"
    return "loss" if contest["winner"] == BASE else "gain"
