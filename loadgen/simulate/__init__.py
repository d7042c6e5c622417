"""A whole fleet in one process and in virtual time, under the gateway's own policies."""

from loadgen.simulate.changes import Addition, Failure, RoleChange
from loadgen.simulate.layout import Declared, Layout, Overheads, Policies, Pool
from loadgen.simulate.simulation import Outcome, WorkerFigures, simulate, simulate_stream
from loadgen.simulate.words import parse_layout

__all__ = [
    "Addition",
    "Declared",
    "Failure",
    "Layout",
    "Outcome",
    "Overheads",
    "Policies",
    "Pool",
    "RoleChange",
    "WorkerFigures",
    "parse_layout",
    "simulate",
    "simulate_stream",
]
