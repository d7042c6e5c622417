"""Time and capacity of the simulated engine.

`load_profile(name)` gives a `Profile`; its `cost` answers how long an iteration takes.
"""

from engine.simulated.cost.catalog import UnknownProfileError, list_profiles, load_budget, load_profile
from engine.simulated.cost.memory import DoesNotFitError, HbmBudget
from engine.simulated.cost.profile import Link, Profile
from engine.simulated.cost.step_cost import PrefillChunk, StepCost, StepTime

__all__ = [
    "DoesNotFitError",
    "HbmBudget",
    "Link",
    "PrefillChunk",
    "Profile",
    "StepCost",
    "StepTime",
    "UnknownProfileError",
    "list_profiles",
    "load_budget",
    "load_profile",
]
