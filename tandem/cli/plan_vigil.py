"""tandem plan watch, while it runs: a gateway is asked again and again, and planned for when its traffic changes."""

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from loadgen.failure import LoadgenError
from loadgen.plan.crew import INTERRUPTED
from loadgen.plan.replan import Replanned, replan
from loadgen.plan.watching import Cause, Watching
from loadgen.plan.words import Words, asked
from loadgen.workload.observed import NobodyCameError, Observed
from tandem.cli.failure import CliError, Exit, gateway_errors, warn
from tandem.cli.plan_apply import apply_layout
from tandem.client import GatewayClient
from tandem.printable import printable

_POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class Ordered:
    """`words`: of a plan, but for its workload and the layout that runs. `running`: that layout at the start."""

    words: Words
    running: Path
    out: Path
    margin: float
    jobs: int
    budget_s: float | None
    quiet: bool
    apply: str
    ask: bool


class Vigil:
    def __init__(self, ordered: Ordered, endpoint: str, api_key: str, watching: Watching) -> None:
        self._ordered = ordered
        self._endpoint, self._api_key = endpoint, api_key
        self._watching = watching
        self._running = ordered.running

    def keep(self, plans: int | None) -> None:
        """Until so many plans have been made. Raises CliError where no gateway answers at the start."""
        with gateway_errors():
            document = self._account()
        known, drifts = document["requests"], document["drifts"]["count"]
        typer.echo(f"watching {self._endpoint}: {known} requests known, {drifts} drifts so far")
        made, lost = 0, False
        while plans is None or made < plans:
            try:
                with gateway_errors():
                    document = self._account()
                    found = self._due(document)
                lost = False
            except CliError as error:  # gateways are replaced; the watch goes on
                if not lost:
                    warn(str(error))
                lost, found = True, None
            if found is None:
                time.sleep(_POLL_S)
                continue
            self._plan(*found)
            self._watching.planned(found[1], document)
            made += 1

    def _due(self, document: dict[str, Any]) -> tuple[Cause, Observed] | None:
        cause = self._watching.heard(document)
        if cause is None:
            return None
        try:
            observed = Observed.of(self._account(rows=True), cause.within_s)
        except NobodyCameError:
            return None
        except LoadgenError as error:  # of a gateway of another version, which would be asked in vain for ever
            raise CliError(Exit.FAILED, f"{self._endpoint}: {error}") from None
        known = cause if cause.text else self._watching.compared(observed)
        return None if known is None else (known, observed)

    def _plan(self, cause: Cause, observed: Observed) -> None:
        ordered, notes = self._ordered, "; ".join(observed.notes())
        typer.echo(f"{time.strftime('%H:%M:%S')} {printable(cause.text)}; planning by {notes}")
        try:
            words = replace(ordered.words, workload=(), observed=observed, running=self._running)
            done = replan(
                asked(words),
                self._running,
                cause,
                ordered.out / time.strftime("%Y%m%d-%H%M%S"),
                ordered.margin,
                ordered.jobs,
                ordered.budget_s,
                ordered.quiet,
            )
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
        async def ask() -> dict[str, Any]:
            async with GatewayClient(self._endpoint, self._api_key) as gateway:
                return await gateway.traffic(rows=rows)

        return asyncio.run(ask())
