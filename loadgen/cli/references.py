"""Unloaded runs that later runs are held against, each made once."""

from collections.abc import Sequence
from dataclasses import replace

from loadgen.arms.base import Arm
from loadgen.cli.session import Session
from loadgen.experiment import Experiment
from loadgen.slo.relative import ReferenceRun
from loadgen.trial import keeps_requests


class References:
    """`at_most` requests are run alone before the first run that draws them; 0 makes no reference.

    Repetitions draw requests of their own, and so do rates where a duration decides how many there are.
    """

    def __init__(
        self, session: Session, experiment: Experiment, arm: Arm, rates: Sequence[float | None], at_most: int
    ) -> None:
        self._session, self._experiment, self._arm, self._at_most = session, experiment, arm, at_most
        known = [rate for rate in rates if rate is not None]
        self._rate = None if len(known) > 1 and at_most and not keeps_requests(experiment, known) else rates[0]
        self._made: dict[tuple[float | None, int], ReferenceRun] = {}

    async def of(self, rate: float | None, repetition: int) -> ReferenceRun | None:
        if not self._at_most:
            return None
        key = (rate if self._rate is None else self._rate, repetition)
        if key not in self._made and not self._session.interrupted:
            own = replace(self._experiment, seed=self._experiment.seed + repetition)
            self._made[key] = await self._session.reference(own, self._arm, key[0], self._at_most)
        return self._made.get(key)
