"""Other hardware or precision than the tables', in the words of `--what-if`."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from loadgen.failure import LoadgenError
from loadgen.plan.candidate import UNCHANGED
from loadgen.plan.changes import BY_FACTOR, Changes

_FACTOR = re.compile(r"(\d+(?:\.\d+)?)x")
WORDS = "hbm=1.25x, bandwidth=2x, compute=2x, link=2x, kv=fp8, weights=fp8, fp8=ideal, seqs=4096"
_HARDWARE: dict[str, Callable[[Changes, float], Changes]] = {
    **BY_FACTOR,
    "link": lambda changes, factor: replace(changes, scale_up=factor),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """Factors: `weights` and `kv` on bytes. `max_num_seqs`, where it is not 0, is another limit of one engine. `remark`: what the answer rests on."""

    words: str = "as tabulated"
    changes: Changes = UNCHANGED
    weights: float = 1.0
    kv: float = 1.0
    max_num_seqs: int = 0
    remark: str = ""


AS_TABULATED = Variant()
_PRECISIONS = {
    "kv=fp8": Variant("kv=fp8", kv=0.5, remark="half the room; attention as slow as with 16 bits, as no table knows it"),
    "weights=fp8": Variant("weights=fp8", weights=0.5, remark="half the room; products as slow as with 16 bits"),
    "fp8=ideal": Variant(
        "fp8=ideal", Changes(compute=2.0, bandwidth=2.0), 0.5, 0.5,
        remark="half the room for weights and KV, and everything but exchange between ranks twice as fast: a limit",
    ),
}  # fmt: skip


def variant(words: str) -> Variant:
    """Raises LoadgenError for what is not known."""
    if words in _PRECISIONS:
        return _PRECISIONS[words]
    key, _, value = words.partition("=")
    if key == "seqs" and value.isdecimal() and int(value):
        return Variant(words, max_num_seqs=int(value), remark=f"engines take up to {value} sequences")
    match = _FACTOR.fullmatch(value)
    if key not in _HARDWARE or match is None or float(match[1]) <= 0:
        raise LoadgenError(f"what-if: {words!r} is not known; there are {WORDS}")
    return Variant(words, _HARDWARE[key](UNCHANGED, float(match[1])))
