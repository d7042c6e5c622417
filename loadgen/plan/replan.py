"""One plan for traffic that has changed, and what it says against the layout that runs."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from loadgen.failure import InterruptedEarlyError, LoadgenError
from loadgen.plan.crew import INTERRUPTED
from loadgen.plan.document import plan_document
from loadgen.plan.duel import Duel, fought
from loadgen.plan.load import Load
from loadgen.plan.plan import Asked, Planned
from loadgen.plan.revision import Revision, difference, revised, text_of
from loadgen.plan.session import searched
from loadgen.plan.watching import Cause
from tandem.config_error import ConfigError
from tandem.document import read_document

#: Of the time there is, for the search; the rest is for the two that it comes down to.
_SEARCH_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Terms:
    """`margin`: the lead that is worth a change, as a share. `headroom`: the share of a layout's highest rate that stays free."""

    margin: float
    headroom: float
    jobs: int
    budget_s: float | None
    quiet: bool


@dataclass(frozen=True, slots=True)
class Replanned:
    """`layout`: the document that was written; None where its format cannot say the winner. `lines` are for a person."""

    planned: Planned
    revision: Revision
    layout: Path | None
    lines: tuple[str, ...]

    @property
    def advised(self) -> bool:
        return self.revision.advised


def replan(question: Asked, running: Path, cause: Cause, folder: Path, rate_ps: float, terms: Terms) -> Replanned:
    """`question` has the layout of `running`. `rate_ps`: of the traffic that it is for. Raises LoadgenError."""
    began_s, budget_s = time.monotonic(), terms.budget_s
    planned = searched(question, terms.jobs, budget_s and budget_s * _SEARCH_SHARE, terms.quiet)
    left_s = budget_s and max(budget_s * (1 - _SEARCH_SHARE), budget_s - (time.monotonic() - began_s))
    duel: Duel | None = None
    try:
        duel = fought(planned, terms.jobs, left_s)
    except InterruptedEarlyError:
        planned = replace(planned, incomplete=INTERRUPTED)
    revision = Revision.of(planned, terms.margin, duel)
    load = Load.of(rate_ps, terms.headroom, revision)
    lines = [f"cut short ({planned.incomplete})"] if planned.incomplete else []
    lines += [*revision.lines(), *load.lines()]
    folder.mkdir(parents=True, exist_ok=True)
    changes: list[str] = []
    layout: Path | None = folder / "layout.yaml"
    assert layout is not None
    try:
        before = read_document(running)
        after = revised(before, planned.winner.candidate)
        changes = difference(before, after)
        layout.write_text(_head(revision) + text_of(after), encoding="utf-8")
    except ConfigError as error:
        raise LoadgenError("; ".join(error.problems)) from None
    except LoadgenError as error:
        layout = None
        lines.append(f"no layout document: {error}")
    written = {
        "cause": cause.text,
        "changed": cause.document(),
        **revision.document(),
        "load": load.document(),
        "difference": changes,
        "plan": plan_document(planned),
    }
    (folder / "revision.json").write_bytes(orjson.dumps(written, option=orjson.OPT_INDENT_2))
    if revision.advised:
        lines += [f"  {line}" for line in changes]
    lines.append(f"plan: {folder / 'revision.json'}" + (f", layout: {layout}" if layout else ""))
    return Replanned(planned, revision, layout, tuple(lines))


def _head(revision: Revision) -> str:
    return "".join(f"# {line}\n" for line in (*revision.lines(), "Figures of a model."))
