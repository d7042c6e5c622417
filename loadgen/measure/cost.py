"""What the useful requests cost."""

from dataclasses import dataclass

from loadgen.failure import LoadgenError

#: Rough on-demand list prices per GPU-hour in US dollars; override with your own.
PRICES_USD = {"h200": 3.5, "h100": 2.9, "a100": 1.8, "l40s": 1.2, "cpu": 0.1}


@dataclass(frozen=True, slots=True)
class Price:
    per_gpu_hour: float
    label: str

    @classmethod
    def parse(cls, text: str) -> "Price":
        """A name of the table or a number."""
        if text in PRICES_USD:
            return cls(PRICES_USD[text], f"{text} at {PRICES_USD[text]:g} USD per hour (built-in guess)")
        try:
            value = float(text)
        except ValueError:
            known = ", ".join(PRICES_USD)
            raise LoadgenError(f"price: {text!r} is neither a number nor one of {known}") from None
        if not 0 <= value < float("inf"):
            raise LoadgenError(f"price: {text!r} is not a price per GPU-hour")
        return cls(value, f"{value:g} per GPU-hour (given)")


@dataclass(frozen=True, slots=True)
class Cost:
    """`total` and `per_1000_good` are money, where a price is known."""

    gpu_hours: float
    completed_per_gpu_hour: float
    good_per_gpu_hour: float
    per_1000_good: float | None
    total: float | None = None


def cost_of(gpus: float, duration_s: float, completed: int, good: int, price: Price | None) -> Cost:
    hours = gpus * duration_s / 3600
    total = None if price is None else hours * price.per_gpu_hour
    money = None if total is None or good == 0 else total / good * 1000
    return Cost(hours, completed / hours if hours else 0.0, good / hours if hours else 0.0, money, total)
