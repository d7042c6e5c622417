"""A colocated layout: so many replicas of so many pipeline stages of so many tensor-parallel ranks."""

import re
from dataclasses import dataclass, replace

from engine.simulated.cost import Profile, load_profile
from engine.simulated.cost.pipeline import pipelined
from engine.simulated.limits import Limits
from engine.simulated.setup import limits_of
from engine.simulated.waiting import Policy

_DEGREE = re.compile(r"(DP|TP|PP)=?(\d+)", re.IGNORECASE)
DEVICE = "h200-sxm"


@dataclass(frozen=True, slots=True, order=True)
class Layout:
    """`dp` replicas, each an engine of `tp` × `pp` GPUs."""

    dp: int = 1
    tp: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        if min(self.dp, self.tp, self.pp) < 1:
            raise ValueError(f"degrees are at least 1: {self}")

    @property
    def gpus(self) -> int:
        return self.dp * self.tp * self.pp

    @property
    def engine_gpus(self) -> int:
        return self.tp * self.pp

    def __str__(self) -> str:
        parts = [f"{name}{n}" for name, n in (("DP", self.dp), ("PP", self.pp), ("TP", self.tp)) if n > 1]
        return "×".join(parts) or "1 GPU"


def parse_layout(text: str) -> Layout:
    """`DP4×TP2`, `tp8`, `PP=4xTP=2`; raises ValueError for anything else."""
    words = [word for word in re.split(r"[x×*, ]+", text.strip()) if word]
    degrees: dict[str, int] = {}
    for word in words:
        match = _DEGREE.fullmatch(word)
        if match is None or match[1].lower() in degrees:
            raise ValueError(f"layout {text!r} is not like DP4×TP2")
        degrees[match[1].lower()] = int(match[2])
    if not degrees:
        raise ValueError(f"layout {text!r} is not like DP4×TP2")
    return Layout(**degrees)


def engine_of(model: str, layout: Layout) -> Profile:
    """One replica's profile, its pipeline kept full.

    Experts are not spread (`ep=1`), as vLLM does unless told: a plain TP or TP×PP layout. Raises DoesNotFitError.
    """
    return pipelined(load_profile(f"{DEVICE}/{model}?tp={layout.tp}&pp={layout.pp}&ep=1"))


def vllm_limits(profile: Profile, max_num_seqs: int) -> Limits:
    """First come first served, no watermark (vLLM's default is 0), whole prompts must fit.

    Without the prefix cache: no two prompts of the workload share a prefix. A preempted sequence could find some of its
    own blocks again; that shortens the batches of the studies by 1 to 3 %.
    """
    return replace(limits_of(profile, caching=False), max_num_seqs=max_num_seqs, policy=Policy.FCFS)
