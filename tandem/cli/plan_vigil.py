"""tandem plan watch, while it runs: gateways are asked again and again, and planned for when their traffic changes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from gateway.wording import counted
from loadgen.failure import InterruptedEarlyError, LoadgenError
from loadgen.plan.accounts import Identities, OneFleetError
from loadgen.plan.crew import INTERRUPTED
from loadgen.plan.replan import Replanned, Terms, replan
from loadgen.plan.watching import Cause, Watching
from loadgen.plan.words import Words, asked
from loadgen.workload.observed import NobodyCameError, Observed
from tandem.cli.failure import CliError, Exit, warn
from tandem.cli.plan_apply import apply_layout
from tandem.cli.traffic_accounts import ask_each, together
from tandem.printable import printable

_POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class Ordered:
    """`words`: of a plan, but for its workload and the layout that runs. `running`: that layout at the start."""

    words: Words
    running: Path
    out: Path
    terms: Terms
    apply: str
    ask: bool


class Vigil:
    def __init__(self, ordered: Ordered, endpoints: Sequence[str], api_key: str, watching: Watching) -> None:
        self._ordered = ordered
        self._endpoints, self._api_key = endpoints, api_key
        self._identities = Identities()
        self._watching = watching
        self._running = ordered.running
        self._troubled: frozenset[str] = frozenset()

    def keep(self, plans: int | None) -> None:
        """Until so many plans have been made. Raises CliError where a gateway does not answer at the start, or the gateways
        are not those of one fleet."""
        document = self._account()
        known, drifts = document["requests"], document["drifts"]["count"]
        typer.echo(
            f"watching {', '.join(self._endpoints)}: {counted(known, 'request')} known, {counted(drifts, 'drift')} so far"
        )
        made = 0
        while plans is None or made < plans:
            found = self._look()
            if found is None:
                time.sleep(_POLL_S)
                continue
            document, cause, observed = found
            self._plan(cause, observed)
            self._watching.planned(observed, document)
            made += 1

    def _look(self) -> tuple[dict[str, Any], Cause, Observed] | None:
        """Gateways are replaced, and the watch goes on; but never by a part of the traffic, which would look like less of it,
        or like another mix."""
        try:
            document = self._account()
            found = self._due(document)
        except _TroubledError as error:
            if error.where != self._troubled:
                for problem in error.problems:
                    warn(f"{problem}; nothing is planned meanwhile")
            self._troubled = error.where
            return None
        if self._troubled:
            typer.echo("the whole traffic is known again")
        self._troubled = frozenset()
        return None if found is None else (document, *found)

    def _due(self, document: dict[str, Any]) -> tuple[Cause, Observed] | None:
        cause = self._watching.heard(document)
        if cause is None:
            return None
        try:
            observed = Observed.of(self._account(rows=True), cause.within_s)
        except NobodyCameError:
            return None
        except LoadgenError as error:  # would be asked in vain for ever
            raise _TroubledError(self._endpoints, CliError(Exit.FAILED, str(error))) from None
        known = self._watching.looked(cause, observed)
        return None if known is None else (known, observed)

    def _plan(self, cause: Cause, observed: Observed) -> None:
        ordered, notes = self._ordered, "; ".join(observed.notes())
        typer.echo(f"{time.strftime('%H:%M:%S')} {printable(cause.text)}; planning by {notes}")
        try:
            words = replace(ordered.words, workload=(), observed=observed, running=self._running)
            folder = ordered.out / time.strftime("%Y%m%d-%H%M%S")
            done = replan(asked(words), self._running, cause, folder, observed.rate_ps, ordered.terms)
        except InterruptedEarlyError as error:
            raise CliError(Exit.INTERRUPTED, str(error)) from None
        except LoadgenError as error:
            warn(f"no plan: {error}")
            return
        for line in done.lines:
            typer.echo(line)
        if done.planned.incomplete == INTERRUPTED:
            raise typer.Exit(Exit.INTERRUPTED)
        self._apply(done)

    def _apply(self, done: Replanned) -> None:
        if not done.advised or done.layout is None:
            return
        if apply_layout(self._ordered.apply, done.layout, ask=self._ordered.ask):
            self._running = done.layout

    def _account(self, *, rows: bool = False) -> dict[str, Any]:
        """Of all gateways together. Raises CliError, and _TroubledError where asking again may help."""
        told = ask_each(self._endpoints, self._api_key, rows=rows)
        try:
            self._identities.see(told.accounts)
            return together(told)
        except OneFleetError as error:
            raise CliError(Exit.USAGE, str(error)) from None
        except CliError as error:
            if error.status is Exit.USAGE:
                raise
            raise _TroubledError(list(told.silent) or self._endpoints, error) from None


class _TroubledError(CliError):
    """A gateway does not answer, or tells what cannot be read. `where`: which."""

    def __init__(self, where: Sequence[str], cause: CliError) -> None:
        super().__init__(cause.status, *cause.problems)
        self.where = frozenset(where)
