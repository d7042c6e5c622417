"""Engines that share the cores of one machine, and what that costs them."""

from collections.abc import Hashable, Mapping


class Neighbours:
    """Who else computes now. `slowdown`: by kind of step, its time beside one busy neighbour over its time alone.

    Known are the engines that this one exchanges KV with, which tell each other when they begin and stop computing.
    A step is stretched by what is so when it begins; with several busy neighbours, by as much again for each.
    """

    def __init__(self, slowdown: Mapping[str, float]) -> None:
        self.matter = any(factor > 1.0 for factor in slowdown.values())
        self._decode = slowdown.get("decode", 1.0) - 1.0
        self._prefill = slowdown.get("prefill", 1.0) - 1.0
        self._busy: set[Hashable] = set()

    def heard(self, neighbour: Hashable, *, busy: bool) -> None:
        if busy:
            self._busy.add(neighbour)
        else:
            self._busy.discard(neighbour)

    def gone(self, neighbour: Hashable) -> None:
        self._busy.discard(neighbour)

    def stretch(self, *, prompts: bool) -> float:
        """By what the time of a step is multiplied; `prompts`: whether it computes any."""
        return 1.0 + (self._prefill if prompts else self._decode) * len(self._busy)
