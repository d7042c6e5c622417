"""An answer's text, taken apart."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """What one step adds to each part of the answer."""

    content: str = ""
    reasoning: str = ""
