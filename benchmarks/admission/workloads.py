"""What is served, for how long, and how much of it the fleet can take."""

from dataclasses import dataclass, replace

from benchmarks.admission.trial import Window


@dataclass(frozen=True, slots=True)
class Workload:
    """`capacity_per_s`: what the oracle completes when far more comes, found with `--capacity`. `first`: the window of a cold
    start, where the other one begins too late to see it."""

    name: str
    words: str
    capacity_per_s: float
    window: Window
    begun: bool = True  # whether answers are under way when the run begins
    first: Window | None = None

    def at_first(self) -> "Workload":
        return replace(self, window=self.first or self.window)

    def shorter(self, share: float) -> "Workload":
        """The same warm-up, and less of what is judged."""
        return replace(self, window=Window(self.window.warm_s, self.window.warm_s + self.window.length_s * share))


#: A request lives 200, 50 and 10 s on the mean; longest, 1,000, 1,200 and 45 s. Where answers live as long as a window, whoever
#: admits boldly has more of its arrivals and pays afterwards: that of natural reasoning is five lives long, and begins when most
#: of the answers that were under way at the start, whose rest every rule knows, have ended.
WORKLOADS = {
    one.name: one
    for one in (
        Workload("natural-reasoning", "natural-reasoning", 1.57, Window(350.0, 1350.0), first=Window(100.0, 350.0)),
        Workload("r1-production", "r1-production max-total=40000", 8.5, Window(60.0, 150.0)),
        Workload("azure-conv", "azure-conv", 115.0, Window(30.0, 50.0), begun=False),
    )
}
