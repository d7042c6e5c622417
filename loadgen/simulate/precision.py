"""Whether a layout computes with the numbers that a trace was answered with."""

from collections.abc import Iterable, Sequence

from engine.simulated.cost import Profile
from engine.simulated.cost.models import SHAPES
from loadgen.demand import Demand


def precision_of(profile: Profile) -> str:
    """`bfloat16`, or `fp8/bfloat16` where weights and KV differ."""
    weights = SHAPES[profile.model].dtype if profile.model in SHAPES else profile.dtype
    return weights if weights == profile.dtype else f"{weights}/{profile.dtype}"


def precision_notes(demands: Iterable[Demand], profiles: Sequence[Profile]) -> tuple[str, ...]:
    """Lengths and quality hang on it, so that arms of other precision are no plain comparison."""
    here = sorted({precision_of(profile) for profile in profiles})
    recorded = sorted({demand.precision for demand in demands} - {"", *(here if len(here) == 1 else ())})
    if not recorded:
        return ()
    return (
        f"precision: requests of the trace were answered with {', '.join(recorded)}, this layout has {', '.join(here)}: "
        "lengths are replayed as they were, quality is not known",
    )
