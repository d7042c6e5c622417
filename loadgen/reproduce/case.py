"""One simulated batch of a study: everything it follows from, small enough to send to another process."""

from dataclasses import dataclass, replace

from engine.simulated.cost import DoesNotFitError
from loadgen.reproduce.batch import MAX_NUM_SEQS, BatchRun, draw, run_on
from loadgen.reproduce.host import with_host
from loadgen.reproduce.layout import Layout, engine_of
from loadgen.reproduce.lengths import Lengths, Reasoning

#: The published shape as it is.
AS_PUBLISHED = Reasoning()


@dataclass(frozen=True, slots=True)
class Case:
    """`requests` at once on a layout of a model; `max_num_seqs` for each engine. `host_us`: see `host.py`."""

    model: str
    layout: Layout
    requests: int
    max_num_seqs: int = MAX_NUM_SEQS
    lengths: Lengths = AS_PUBLISHED
    host_us: float = 0.0

    def scaled(self, share: float, host_us: float = 0.0) -> "Case":
        """A share of the batch, for a quick look, and the time of the host."""
        return replace(self, requests=max(1, round(self.requests * share)), host_us=host_us)


def run_case(case: Case, seed: int) -> BatchRun | None:
    """None when the model does not fit the layout."""
    demands = draw(case.lengths.workload(), case.requests, seed)
    try:
        profile = with_host(engine_of(case.model, case.layout), case.host_us * 1e-6)
    except DoesNotFitError:
        return None
    return run_on(profile, case.layout, demands, max_num_seqs=case.max_num_seqs)
