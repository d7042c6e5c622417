"""A plan's question in the words of the command line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loadgen.arrivals.process import Arrivals, Kind
from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.measure.cost import PRICES_USD, Price
from loadgen.plan.candidate import HAND_OFF_FROM, Candidate
from loadgen.plan.layout_document import read_layout
from loadgen.plan.plan import Asked
from loadgen.plan.question import Question
from loadgen.plan.space import Gpus, Space, check_profile
from loadgen.slo.policy import Policy, build_policy
from loadgen.slo.presets import preset
from loadgen.workload.base import Workload
from loadgen.workload.observed import Observed
from loadgen.workload.spec import Catalogue

_GROUP = re.compile(r"(?P<count>\d+)\s*[x×]\s*(?P<device>[\w.-]+(?:\?[\w=&.]+)?)(?:@(?P<price>\d+(?:\.\d+)?|\.\d+))?")

#: Every split of them is listed.
_MOST_GPUS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """As given; empty is "not said"."""

    model: str
    gpus: str
    workload: Sequence[str] = ()
    goodput: Sequence[str] = ()
    slo: str = ""
    goals: str = "0.9,0.99"
    burstiness: float | None = None
    observed: Observed | None = None
    seed: int = 0
    prefill_model: str = ""
    max_num_seqs: int = 256
    gpus_per_node: int = 8
    price: str = ""
    what_if: Sequence[str] = ()
    running: Path | None = None
    marginal: bool = True
    timeout_s: float = 600.0


def asked(words: Words) -> Asked:
    """Raises LoadgenError with the one thing that is wrong."""
    groups = gpu_groups(words.gpus, words.model)
    for profile in [group.profile for group in groups] + ([words.prefill_model] if words.prefill_model else []):
        check_profile(profile)
    if words.prefill_model and len(groups) > 1:
        raise LoadgenError("--prefill-model goes with one kind of GPU; two kinds already say who may prefill")
    if not words.timeout_s > 0:
        raise LoadgenError("--timeout must be above 0")
    question = Question(
        _workload(words),
        _policy(words),
        _arrivals(words),
        goals=_goals(words.goals),
        seed=words.seed,
        client_timeout_s=words.timeout_s,
        gpus_per_node=words.gpus_per_node,
    )
    space = Space(
        groups,
        thresholds_of(question.sample),
        words.prefill_model,
        seqs=words.max_num_seqs,
        gpus_per_node=words.gpus_per_node,
    )
    running = _running(words.running, words, groups) if words.running else None
    what_ifs = tuple(part.strip() for text in words.what_if for part in text.split(",") if part.strip())
    return Asked(question, space, what_ifs, words.marginal, running, _prices(words, groups))


def gpu_groups(text: str, model: str) -> tuple[Gpus, ...]:
    """`8`, or `4x h200-sxm + 4x h200-sxm?gib=96@2.1`: count, device and options, price per GPU-hour."""
    _, slash, name = model.partition("/")
    if not slash and not model.startswith("file:"):
        raise LoadgenError(f"model: {model!r} is not DEVICE/MODEL, such as h200-sxm/qwen3-32b, nor file:TABLE")
    if text.strip().isdecimal():
        groups = [Gpus(model, int(text))]
    else:
        groups = []
        for part in text.split("+"):
            match = _GROUP.fullmatch(part.strip())
            if match is None:
                raise LoadgenError(f"gpus: {part.strip()!r} is neither a number nor 'COUNTx DEVICE[?gib=N][@PRICE]'")
            kind, mark, options = match["device"].partition("?")
            price = float(match["price"]) if match["price"] else None
            groups.append(Gpus(f"{kind}/{name.partition('?')[0]}{mark}{options}", int(match["count"]), price))
    if any(group.count > _MOST_GPUS for group in groups):
        raise LoadgenError(f"gpus: a plan is for {_MOST_GPUS:,} of a kind at most; plan for a part of a larger fleet")
    if any(group.count < 1 for group in groups):
        raise LoadgenError("gpus: a plan needs at least one GPU of each kind")
    if len({group.profile for group in groups}) != len(groups):
        raise LoadgenError("gpus: the same kind is given twice")
    return tuple(groups)


def _running(path: Path, words: Words, groups: Sequence[Gpus]) -> Candidate:
    """Another model or another number of GPUs would be ranked by figures that mean something else there."""
    running = read_layout(path, groups[0].profile, words.max_num_seqs)
    planned, gpus = groups[0].model, sum(group.count for group in groups)
    other = next((part.engine.profile for part in running.parts if Gpus(part.engine.profile, 1).model != planned), None)
    if other is not None:
        raise LoadgenError(f"--running {path}: its engines are {other}, the plan is for {planned}")
    if running.gpus != gpus:
        raise LoadgenError(f"--running {path}: its workers have {running.gpus} GPUs, the plan is for {gpus}")
    for part in running.parts:
        try:
            profile = part.engine.load()
        except ValueError as error:
            raise LoadgenError(f"--running {path}: {error}") from None
        if profile.tp > words.gpus_per_node and not profile.group_link:
            raise LoadgenError(
                f"--running {path}: its TP{profile.tp} does not fit a node of {words.gpus_per_node} GPUs (--gpus-per-node)"
            )
    return running


def thresholds_of(sample: Sequence[Demand]) -> tuple[int, ...]:
    """Of local prefill: the gateway's default, and the median and the ninth decile of the prompts, in whole blocks."""
    prompts = [d.prompt_tokens for d in sample]
    cuts = [16 * max(1, round(float(np.percentile(prompts, share)) / 16)) for share in (50, 90)]
    return tuple(dict.fromkeys([HAND_OFF_FROM, *(cut + 1 for cut in cuts)]))


def _workload(words: Words) -> Workload:
    if words.observed is None:
        return Catalogue().mix(words.workload)
    if words.workload:
        raise LoadgenError("workload: give observed traffic (--observed) or a workload (-w), not both")
    return words.observed.workload()


def _arrivals(words: Words) -> Arrivals:
    own = words.observed.burstiness if words.observed is not None else 1.0
    shape = own if words.burstiness is None else words.burstiness
    return Arrivals(Kind.POISSON if shape == 1 else Kind.GAMMA, burstiness=shape)


def _policy(words: Words) -> Policy:
    limits = build_policy(words.goodput)
    if words.slo and limits.rules:
        raise LoadgenError("SLO: give a preset (--slo) or limits (--goodput), not both")
    chosen = preset(words.slo) if words.slo else limits
    if not isinstance(chosen, Policy):
        raise LoadgenError(f"SLO: {words.slo} judges whole runs; a plan needs limits per request")
    return chosen


def _goals(text: str) -> tuple[float, ...]:
    try:
        return tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        raise LoadgenError(f"--goals {text!r} is not a list of shares such as 0.9,0.99") from None


def _prices(words: Words, groups: Sequence[Gpus]) -> tuple[tuple[str, float], ...]:
    """A kind's own price goes before `--price`; without either, a built-in guess by the device's name."""
    common = Price.parse(words.price).per_gpu_hour if words.price else None
    found = {}
    profiles = [(g.profile, g.price) for g in groups] + ([(words.prefill_model, None)] if words.prefill_model else [])
    for profile, own in profiles:
        guess = PRICES_USD.get(profile.partition("-")[0])
        price = own if own is not None else common if common is not None else guess
        if price is not None:
            found[profile] = price
    return tuple(found.items())
