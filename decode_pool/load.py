"""What a worker has to give, and what its engine says that it uses."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """What a worker has to give."""

    blocks_total: int
    block_size_tokens: int
    slots_total: int
    max_model_len: int


@dataclass(frozen=True, slots=True)
class Load:
    """The engine's own figures. `foreign`: it also runs work that has no reservation here (a `both` worker).

    `step_time_s`: of a decode step, 0 while not known.
    """

    blocks_used: int = 0
    sequences: int = 0
    foreign: bool = False
    step_time_s: float = 0.0
