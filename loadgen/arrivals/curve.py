"""A rate that changes over the day."""

from dataclasses import dataclass

from loadgen.failure import LoadgenError


@dataclass(frozen=True, slots=True)
class RateCurve:
    """`rates` per second, each for `window_s`; after the last one the first again."""

    rates: tuple[float, ...]
    window_s: float

    def __post_init__(self) -> None:
        if not self.rates or min(self.rates) <= 0 or self.window_s <= 0:
            raise LoadgenError("arrivals: a curve has rates above 0, each for some seconds")

    @property
    def mean(self) -> float:
        return sum(self.rates) / len(self.rates)

    def after(self, at_s: float, gap: float) -> float:
        """When a gap of unit rate that began at `at_s` ends: where the integrated rate has grown by it."""
        while True:
            window = int(at_s / self.window_s + 1e-9)
            rate = self.rates[window % len(self.rates)]
            end_s = (window + 1) * self.window_s
            if at_s + gap / rate <= end_s:
                return at_s + gap / rate
            gap -= (end_s - at_s) * rate
            at_s = end_s
