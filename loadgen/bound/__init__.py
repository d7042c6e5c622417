"""An optimistic limit on what a layout can serve, so that a result can be read as a share of what is possible."""

from loadgen.bound.bound import Bound, Resource, bound_of
from loadgen.bound.layout import Pool, Role
from loadgen.bound.steps import Remembered
from loadgen.bound.work import Limits, Work, work_of

__all__ = ["Bound", "Limits", "Pool", "Remembered", "Resource", "Role", "Work", "bound_of", "work_of"]
