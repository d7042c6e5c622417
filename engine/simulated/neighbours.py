"""Engines that share the cores of one machine, and what that costs them."""

from collections.abc import Hashable, Mapping


def stretch(slowdown: Mapping[str, float], busy: int, *, prompts: bool) -> float:
    """By what the time of a step is multiplied while `busy` neighbours compute; `prompts`: whether it computes any."""
    return 1.0 + (slowdown.get("prefill" if prompts else "decode", 1.0) - 1.0) * busy


class Neighbours:
    """Who else computes now. `slowdown`: by kind of step, its time beside one busy neighbour over its time alone.

    Known are the engines that this one exchanges KV with, which tell each other when they begin and stop computing.
    A step is stretched by what is so when it begins; with several busy neighbours, by as much again for each.
    """

    def __init__(self, slowdown: Mapping[str, float]) -> None:
        self.matter = any(factor > 1.0 for factor in slowdown.values())
        self._slowdown = slowdown
        self._busy: set[Hashable] = set()

    def heard(self, neighbour: Hashable, *, busy: bool) -> None:
        if busy:
            self._busy.add(neighbour)
        else:
            self._busy.discard(neighbour)

    def gone(self, neighbour: Hashable) -> None:
        self._busy.discard(neighbour)

    def stretch(self, *, prompts: bool) -> float:
        return stretch(self._slowdown, len(self._busy), prompts=prompts)
