"""An answer's text, taken apart."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A part of the tool call at `index`. The first one of a call has the name; `arguments` go on from those before."""

    index: int
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """What one step adds to each part of the answer."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()


def joined(said: Iterable[Said]) -> Said:
    """Several steps as one, with one delta a call."""
    content, reasoning = "", ""
    calls: dict[int, CallDelta] = {}
    for one in said:
        content += one.content
        reasoning += one.reasoning
        for delta in one.calls:
            before = calls.get(delta.index, CallDelta(delta.index))
            calls[delta.index] = CallDelta(delta.index, before.name or delta.name, before.arguments + delta.arguments)
    return Said(content, reasoning, tuple(calls.values()))
