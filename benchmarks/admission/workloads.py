"""What is served, for how long, and how much of it the fleet can take."""

from dataclasses import dataclass, replace

from benchmarks.admission.trial import Window


@dataclass(frozen=True, slots=True)
class Workload:
    """`capacity_per_s`: what the oracle completes when far more comes, found with `--capacity`."""

    name: str
    words: str
    capacity_per_s: float
    window: Window
    begun: bool = True  # whether answers are under way when the run begins

    def shorter(self, share: float) -> "Workload":
        """The same warm-up, and less of what is judged."""
        return replace(self, window=Window(self.window.warm_s, self.window.warm_s + self.window.length_s * share))


#: A request lives 200, 50 and 10 s on the mean; longest, 1,000, 1,200 and 45 s.
WORKLOADS = {
    one.name: one
    for one in (
        Workload("natural-reasoning", "natural-reasoning", 1.57, Window(100.0, 350.0)),
        Workload("r1-production", "r1-production max-total=40000", 8.5, Window(60.0, 150.0)),
        Workload("azure-conv", "azure-conv", 115.0, Window(30.0, 50.0), begun=False),
    )
}
