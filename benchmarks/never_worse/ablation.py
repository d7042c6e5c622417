"""Layouts that have parts of the role policy, so that what each part brings can be told apart."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from math import inf

from benchmarks.never_worse.arms import Arm, Kind, named
from benchmarks.never_worse.mixes import Model
from benchmarks.never_worse.trial import Aim
from gateway.policy.need import Need
from gateway.policy.prefill_choice import choose_prefill
from gateway.policy.roles import Aims, Fluid, Knobs, StepLaw
from gateway.policy.roles.book import Book
from gateway.policy.routing import Fleet, Outlook, Path, Placement, Rules, place
from loadgen.simulate.worker import role_name


class Part(StrEnum):
    ROUTING = "routing"  # who computes a prompt and decodes its answer
    ORDER = "order"  # prompts that will be late go behind
    STEPS = "steps"  # how much a step may have of prompts


@dataclass(slots=True)
class FullSteps(Book):
    """Of an engine that fills its steps up to `full_tokens`, whatever its answers may still take."""

    full_tokens: int = 0

    def most_tokens(self, law: StepLaw, aims: Aims, knobs: Knobs) -> int:
        return max(self.full_tokens, self.answers + len(self.handed) + 1)


class Parts(Fluid):
    """`budgets`: tokens of a step that the layout gives workers, by what their names begin with. Nobody leans to prefill."""

    def __init__(
        self,
        aims: Aims,
        parts: Collection[Part],
        budgets: Mapping[str, int],
        kv_bytes_per_token: int,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(aims, clock, Knobs(leans=False) if Part.ORDER in parts else Knobs(leans=False, late_share=inf))
        self._parts = frozenset(parts)
        self._budgets = budgets
        self._kv_bytes_per_token = kv_bytes_per_token

    def book(self, worker_id: str) -> Book:
        if Part.STEPS not in self._parts and worker_id not in self._books:
            self._books[worker_id] = FullSteps(full_tokens=self._full(worker_id))
        return super().book(worker_id)

    def budget(self, worker_id: str) -> int:
        if Part.STEPS in self._parts:
            return super().budget(worker_id)
        book = self.book(worker_id)
        book.budget = self._full(worker_id)
        return book.budget

    def chunk_tokens(self, worker_id: str) -> int:
        if Part.STEPS in self._parts:
            return super().chunk_tokens(worker_id)
        full = self._full(worker_id)
        return -(-full // 2) if self.book(worker_id).backlog.shared else full

    def place(
        self, need: Need, fleet: Fleet, rules: Rules, avoid: Collection[str] = (), never: Collection[str] = ()
    ) -> Outlook:
        if Part.ROUTING in self._parts:
            return super().place(need, fleet, rules, avoid, never)
        found = place(need, fleet, rules, avoid, never)
        if not isinstance(found, Placement) or found.path is not Path.REMOTE:
            return found
        # the books must know now what a static gateway decides as it sends the prompt
        links = fleet.links.get(found.worker_id, {})
        partners = fleet.partners(found.worker_id)
        prefill = choose_prefill(need.prompt_tokens, self._kv_bytes_per_token, partners, links)
        return replace(found, prefill_id=prefill or "")

    def _full(self, worker_id: str) -> int:
        return self._budgets[worker_id.rpartition("-")[0]]


def with_parts(arm: Arm, aim: Aim, parts: Collection[Part]) -> Arm:
    """A static layout with those."""
    pools = arm.layout.pools
    budgets = {role_name(pool.role): pool.profile.max_num_batched_tokens for pool in pools}
    aims = Aims(aim.ttft_ms / 1e3, aim.tpot_ms / 1e3)
    roles = partial(Parts, aims, tuple(parts), budgets, pools[0].profile.kv_bytes_per_token)
    name = f"{arm.name} +{'+'.join(sorted(parts))}"
    return replace(arm, name=name, layout=replace(arm.layout, roles=roles), others=())


def asked(model: Model, aim: Aim, text: str) -> Arm:
    """As tables write it, with parts: `4C TP2/512 +order+steps`. Raises ValueError."""
    name, _, words = text.rpartition(" +")
    if not name or words.startswith(" "):  # the second half of a split
        name, words = text, ""
    arm = named(model, aim, name)
    if arm is None:
        raise ValueError(
            f"{model.name} has no layout {name!r}; there are such as 4C TP2/512, 6P TP1/2048 + 1D TP2, 4F TP2"
        )
    if not words:
        return arm
    if arm.kind not in (Kind.COLOCATED, Kind.SPLIT):
        raise ValueError(f"{text!r}: it has the whole policy")
    try:
        return with_parts(arm, aim, [Part(word) for word in words.split("+")])
    except ValueError:
        raise ValueError(f"{text!r}: parts are {', '.join(Part)}") from None
