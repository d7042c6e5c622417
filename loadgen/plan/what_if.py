"""Other traffic or hardware than asked, in the words of `--what-if`, and what the best layouts then do."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from loadgen.arrivals.process import Arrivals, Kind
from loadgen.failure import LoadgenError
from loadgen.plan.candidate import Candidate, Part
from loadgen.plan.changes import BY_FACTOR, Changes
from loadgen.plan.question import Question
from loadgen.plan.space import check_profile
from loadgen.workload.shape import Shape, shaped
from proto.worker import Role

_FACTOR = re.compile(r"(\d+(?:\.\d+)?)x")
WORDS = "output=2x, input=2x, burst=2x, kv=fp8, hbm=1.5x, bandwidth=2x, compute=2x, link=2x, gpu=DEVICE[?gib=N], lost-worker, lost-node"
_HARDWARE: dict[str, Callable[[Changes, float], Changes]] = {
    **BY_FACTOR,
    "link": lambda changes, factor: replace(changes, kv_link=factor),
}


@dataclass(frozen=True, slots=True)
class WhatIf:
    """`question` and each layout as they are in that case. `remark`: what the answer rests on."""

    words: str
    question: Question
    layouts: tuple[tuple[Candidate, Candidate | None], ...]
    remark: str = ""


def what_if(words: str, question: Question, candidates: Sequence[Candidate], gpus_per_node: int) -> WhatIf:
    """Raises LoadgenError for what the tables do not support. A layout is None where it no longer serves."""
    same: tuple[tuple[Candidate, Candidate | None], ...] = tuple((c, c) for c in candidates)
    key, _, value = words.partition("=")
    if key in ("output", "input"):
        factor = _factor(words, value)
        shape = Shape(scale_output=factor) if key == "output" else Shape(scale_input=factor)
        changed = replace(question, workload=shaped(question.workload, shape))
        return WhatIf(words, changed, same, f"every {key} length times {value.removesuffix('x')}")
    if key == "burst":
        calm = question.arrivals.burstiness / _factor(words, value)
        remark = f"gaps of gamma shape {calm:g}, so their squared variation times {value.removesuffix('x')}"
        return WhatIf(words, replace(question, arrivals=_bursty(question, calm)), same, remark)
    if key in _HARDWARE:
        changes = _HARDWARE[key](question.changes, _factor(words, value))
        return WhatIf(words, replace(question, changes=changes), same)
    if words == "kv=fp8":
        changes = replace(question.changes, kv_fp8=True)
        for candidate in candidates:
            _check_loads(words, candidate, replace(question, changes=changes))
        remark = (
            "half the bytes a token in memory and on links; attention is as slow as with 16 bits, as no table knows it"
        )
        return WhatIf(words, replace(question, changes=changes), same, remark)
    if key == "gpu" and value:
        return _other_gpu(words, value, question, candidates)
    if words == "lost-worker":
        lost = tuple((c, _without_worker(c)) for c in candidates)
        return WhatIf(words, question, lost, "one worker fewer in the pool with the fewest, and it does not come back")
    if words == "lost-node":
        return _lost_node(words, question, candidates, gpus_per_node)
    raise LoadgenError(f"what-if: {words!r} is not known; there are {WORDS}")


def _factor(words: str, text: str) -> float:
    match = _FACTOR.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise LoadgenError(f"what-if: {words!r} needs a factor above 0, such as {words.partition('=')[0]}=2x")
    return float(match[1])


def _bursty(question: Question, shape: float) -> Arrivals:
    if question.arrivals.kind not in (Kind.POISSON, Kind.GAMMA):
        raise LoadgenError(f"what-if: burst changes Poisson or gamma arrivals, not {question.arrivals.kind}")
    return replace(question.arrivals, kind=Kind.GAMMA, burstiness=shape)


def _other_gpu(words: str, device: str, question: Question, candidates: Sequence[Candidate]) -> WhatIf:
    name, mark, options = device.partition("?")

    def moved(candidate: Candidate) -> Candidate:
        parts = []
        for part in candidate.parts:
            model = part.engine.profile.partition("/")[2].partition("?")[0]
            profile = f"{name}/{model}{mark}{options}"
            check_profile(profile)
            parts.append(replace(part, engine=replace(part.engine, profile=profile)))
        return replace(candidate, parts=tuple(parts))

    pairs = tuple((c, moved(c)) for c in candidates)
    kept = tuple((c, m if all(p.engine.fits for p in m.parts) else None) for c, m in pairs)
    return WhatIf(words, question, kept, f"the same layouts on {device}")


def _check_loads(words: str, candidate: Candidate, question: Question) -> None:
    try:
        candidate.bound_pools(question.changes)
    except ValueError as error:
        raise LoadgenError(f"what-if: {words}: {error}") from None


def _without_worker(candidate: Candidate) -> Candidate | None:
    fewest = min(candidate.parts, key=lambda part: part.workers)
    return _left(candidate, [replace(p, workers=p.workers - 1) if p is fewest else p for p in candidate.parts])


def _lost_node(words: str, question: Question, candidates: Sequence[Candidate], gpus_per_node: int) -> WhatIf:
    if any(candidate.gpus <= gpus_per_node for candidate in candidates):
        raise LoadgenError(
            f"what-if: lost-node: these layouts fill one node of {gpus_per_node} GPUs, so nothing would be left; "
            "use lost-worker, or a smaller --gpus-per-node"
        )
    pairs = tuple((c, _without_first_node(c, gpus_per_node)) for c in candidates)
    return WhatIf(words, question, pairs, "the node that holds the first workers is gone, and does not come back")


def _without_first_node(candidate: Candidate, size: int) -> Candidate | None:
    """Workers fill nodes in order, as in the simulation."""
    ends = list(accumulate(part.gpus for part in candidate.parts))
    kept = []
    for part, end in zip(candidate.parts, ends, strict=True):
        inside = max(0, min(end, size) - (end - part.gpus))
        kept.append(replace(part, workers=part.workers - min(part.workers, -(-inside // part.engine.gpus))))
    return _left(candidate, kept)


def _left(candidate: Candidate, parts: Sequence[Part]) -> Candidate | None:
    """The candidate with these parts, if somebody still prefills and somebody decodes."""
    left = tuple(part for part in parts if part.workers)
    return replace(candidate, parts=left) if _serves(left) else None


def _serves(parts: Sequence[Part]) -> bool:
    roles = {part.role for part in parts}
    return Role.BOTH in roles or roles >= {Role.PREFILL, Role.DECODE}
