"""Every layout worth a look for a number of GPUs, and which engines are never worth one."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from engine.simulated.cost import DoesNotFitError, Profile, UnknownProfileError, list_profiles, load_budget
from engine.simulated.cost.catalog import table_of
from engine.simulated.cost.request import parse_request
from loadgen.failure import LoadgenError
from loadgen.plan.candidate import HAND_OFF_FROM, Candidate, Engine, Part
from proto.worker import Role

#: Token budgets of a step, where the pool computes prompts beside answers, and where it computes prompts alone.
BESIDE = (256, 512, 1024, 2048, 4096, 8192)
ALONE = (2048, 8192)
#: A step of a decode worker, which seldom has a prompt in it.
DECODE_BUDGET = 2048
#: So many splits of the GPUs between two kinds of engine, evenly spread, when there are more.
_SPLITS = 9


@dataclass(frozen=True, slots=True)
class Gpus:
    """`count` GPUs of one kind under one model; `price` per GPU-hour, where it is known."""

    profile: str
    count: int
    price: float | None = None

    @property
    def model(self) -> str:
        asked = parse_request(self.profile)
        return asked.name.partition("/")[2] if asked.file is None else table_of(self.profile).model


@dataclass(frozen=True, slots=True)
class Space:
    """What is varied. `groups`: the kinds of GPUs. `prefill_profile` goes for prefill pools on the first kind."""

    groups: tuple[Gpus, ...]
    thresholds: tuple[int, ...] = (HAND_OFF_FROM,)
    prefill_profile: str = ""
    seqs: int = 256
    most_pp: int = 8
    gpus_per_node: int = 8


@dataclass(frozen=True, slots=True)
class Dominated:
    """An engine that another one of as many GPUs beats at everything."""

    engine: Engine
    by: Engine

    def __str__(self) -> str:
        return f"{self.engine.degrees} is dominated by {self.by.degrees}: never faster, and no more room for KV"


def check_profile(profile: str) -> None:
    """Raises LoadgenError for a name without a table."""
    try:
        asked = parse_request(profile)
        if asked.file is None and asked.name not in known_models():
            raise UnknownProfileError(f"no table {asked.name!r}; known: {', '.join(known_models())}")
        load_budget(profile)
    except DoesNotFitError:
        pass  # a plan may find degrees at which it does
    except ValueError as error:
        raise LoadgenError(f"model: {error}") from None
    if asked.tp or asked.pp or asked.ep or asked.tokens or asked.seqs:
        raise LoadgenError(f"model: {profile!r} must not fix tp, pp, ep, tokens or seqs; the plan chooses them")


def known_models() -> list[str]:
    return [name for name in list_profiles() if "/" in name]


def engines(profile: str, gpus: int, space: Space) -> tuple[list[Engine], list[Dominated]]:
    """The degrees that fit into memory and into `gpus` of one node, without those that others dominate."""
    most = min(gpus, space.gpus_per_node)
    made = [
        Engine(profile, tp, pp, ep, seqs=space.seqs)
        for tp in _powers(most)
        for ep in _powers(tp)
        for pp in _powers(min(space.most_pp, most // tp))
    ]
    fitting = [engine for engine in made if engine.fits]
    dominated = []
    for one in fitting:
        rivals = [other for other in fitting if other.gpus == one.gpus and other != one]
        better = next((other for other in rivals if _dominates(other.load(), one.load())), None)
        if better is not None:
            dominated.append(Dominated(one, better))
    beaten = {each.engine for each in dominated}
    return [engine for engine in fitting if engine not in beaten], dominated


def _dominates(ours: Profile, theirs: Profile) -> bool:
    """On a grid of steps: nowhere slower, somewhere faster, and at least as much KV in total and for one request."""
    if ours.kv_tokens_total < theirs.kv_tokens_total or ours.max_model_len < theirs.max_model_len:
        return False
    grid = [
        (batch, batch * context, [(prompt, 0)] if prompt else [])
        for batch, context, prompt in product((0, 1, 8, 64, 256), (128, 2048, 16384), (0, 128, 1024, 8192))
        if (batch or prompt) and batch * context <= theirs.kv_tokens_total
    ]
    pairs = [(ours.cost.step_s(*step), theirs.cost.step_s(*step)) for step in grid]
    return all(a <= b * 1.0001 for a, b in pairs) and any(a < b * 0.999 for a, b in pairs)


def candidates(space: Space) -> tuple[list[Candidate], list[Dominated]]:
    """Raises LoadgenError when nothing fits."""
    found: dict[Candidate, None] = {}
    dominated: list[Dominated] = []
    kinds = []
    for group in space.groups:
        fitting, beaten = engines(group.profile, group.count, space)
        dominated += beaten
        kinds.append((group, fitting))
    if not any(fitting for _, fitting in kinds):
        names = " + ".join(f"{g.count} GPUs of {g.profile}" for g in space.groups)
        raise LoadgenError(f"no layout fits: the weights leave no room for KV on {names}, whatever the degrees")
    if len(kinds) == 1:
        group, fitting = kinds[0]
        prompt_engines = fitting
        if space.prefill_profile:
            prompt_engines, beaten = engines(space.prefill_profile, group.count, space)
            dominated += beaten
        made: Iterable[Candidate] = _of_one_kind(group.count, fitting, prompt_engines, space)
    else:
        made = _of_kinds(kinds, space)
    found.update(dict.fromkeys(made))
    if not found:
        raise LoadgenError(f"no layout fits {sum(g.count for g in space.groups)} GPUs exactly")
    return list(found), dominated


def _of_one_kind(
    gpus: int, fitting: Sequence[Engine], prompt_engines: Sequence[Engine], space: Space
) -> Iterable[Candidate]:
    for engine in fitting:
        if gpus % engine.gpus == 0:
            yield from _colocated(Part(Role.BOTH, gpus // engine.gpus, engine))
    for ours, theirs in product(prompt_engines, fitting):
        for x, y in _splits(gpus, ours.gpus, theirs.gpus):
            yield from _disaggregated(Part(Role.PREFILL, x, ours), Part(Role.DECODE, y, theirs), space)
            yield from _with_prefill(Part(Role.PREFILL, x, ours), Part(Role.BOTH, y, theirs), space)
    for ours, theirs in product(fitting, fitting):
        for x, y in _splits(gpus, ours.gpus, theirs.gpus):
            yield from _with_decode(Part(Role.BOTH, x, ours), Part(Role.DECODE, y, theirs))


def _of_kinds(kinds: Sequence[tuple[Gpus, Sequence[Engine]]], space: Space) -> Iterable[Candidate]:
    """Two kinds: each is one pool, in every pair of roles that serves."""
    if len(kinds) != 2:
        raise LoadgenError("gpus: at most two kinds can be mixed")
    for (one, mine), (other, theirs) in (kinds, kinds[::-1]):
        for a, b in product(mine, theirs):
            if one.count % a.gpus or other.count % b.gpus:
                continue
            x, y = one.count // a.gpus, other.count // b.gpus
            yield from _disaggregated(Part(Role.PREFILL, x, a), Part(Role.DECODE, y, b), space)
            yield from _with_prefill(Part(Role.PREFILL, x, a), Part(Role.BOTH, y, b), space)
            yield from _with_decode(Part(Role.BOTH, x, a), Part(Role.DECODE, y, b))
            if one is kinds[0][0]:
                for tokens in BESIDE:
                    yield Candidate(
                        (_budget(Part(Role.BOTH, x, a), tokens), _budget(Part(Role.BOTH, y, b), tokens))
                    )  # fmt: skip


def _colocated(part: Part) -> Iterable[Candidate]:
    for tokens in BESIDE:
        yield Candidate((_budget(part, tokens),))


def _disaggregated(prefill: Part, decode: Part, space: Space) -> Iterable[Candidate]:
    for tokens, threshold in product(ALONE, space.thresholds):
        yield Candidate((_budget(prefill, tokens), _budget(decode, DECODE_BUDGET)), threshold)


def _with_prefill(prefill: Part, both: Part, space: Space) -> Iterable[Candidate]:
    for threshold in space.thresholds:
        yield Candidate((_budget(prefill, max(ALONE)), _budget(both, DECODE_BUDGET)), threshold)


def _with_decode(both: Part, decode: Part) -> Iterable[Candidate]:
    yield Candidate((_budget(decode, DECODE_BUDGET), _budget(both, DECODE_BUDGET)))


def _budget(part: Part, tokens: int) -> Part:
    return replace(part, engine=replace(part.engine, tokens=tokens))


def _splits(gpus: int, one: int, other: int) -> list[tuple[int, int]]:
    """Workers of two sizes that use every GPU: fewer leave some idle, which some other split does not."""
    every = [(x, (gpus - x * one) // other) for x in range(1, gpus // one + 1) if (gpus - x * one) % other == 0]
    every = [(x, y) for x, y in every if y > 0]
    if len(every) <= _SPLITS:
        return every
    step = (len(every) - 1) / (_SPLITS - 1)
    return [every[round(i * step)] for i in range(_SPLITS)]


def _powers(most: int) -> list[int]:
    return [2**k for k in range(int(math.log2(most)) + 1)] if most >= 1 else []
