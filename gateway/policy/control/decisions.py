"""The latest decisions and why they were made, for `tandem explain`. Pure; no prompt text, bounded."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from gateway.policy.control.plan import Plan
from gateway.policy.estimate import Estimate
from gateway.policy.need import Need
from gateway.policy.routing import DecodeCandidate, Fleet, NoRoute, Placement, Rules, Wait, Way, choose_path

#: Looks of one prompt that are kept: the first ones and the last.
_LOOKS = 12
#: Candidates of one look that are kept, best first.
_CANDIDATES = 16


@dataclass(frozen=True, slots=True)
class Scored:
    """One decode worker as it stood. `score`: the share of its KV left after growth, by which it is chosen."""

    worker_id: str
    verdict: str
    score: float
    free_after_blocks: float
    cached_tokens: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """The fleet as it stood. Scored only when somebody asks: few do, and every admission would pay for it."""

    need: Need
    fleet: Fleet
    rules: Rules
    avoid: frozenset[str]
    never: frozenset[str]

    def scored(self) -> tuple[Scored, ...]:
        """Every decode worker with what speaks for and against it, the best first."""
        rows = [_score(self, decode) for decode in self.fleet.decodes]
        return tuple(sorted(rows, key=lambda row: (row.verdict != "fits", -row.score))[:_CANDIDATES])


@dataclass(frozen=True, slots=True)
class Look:
    """One moment at which something was decided. `numbers` are those of a refusal, `ways` what a role policy weighed."""

    at_s: float
    what: str
    worker_id: str = ""
    why: str = ""
    waiting: int = 0
    seen: Seen | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    ways: tuple[Way, ...] = ()

    @property
    def candidates(self) -> tuple[Scored, ...]:
        """Where ways were weighed, those that could not be among them: the others were chosen by their ways."""
        scored = self.seen.scored() if self.seen else ()
        return tuple([each for each in scored if each.verdict != "fits"]) if self.ways else scored

    def document(self, began_s: float) -> dict[str, Any]:
        """`at_s` counts from `began_s` on."""
        return {
            "at_s": round(self.at_s - began_s, 6),
            "what": self.what,
            "worker_id": self.worker_id,
            "why": self.why,
            "waiting": self.waiting,
            "numbers": dict(self.numbers),
            "candidates": [asdict(each) for each in self.candidates],
            "ways": [asdict(each) for each in self.ways],
        }


@dataclass(slots=True)
class Decision:
    """One prompt of a request. Times are on the controller's clock."""

    request_id: str
    tenant: str
    policy: str
    rule: str
    klass: str
    prompt_tokens: int
    answers: int
    limit_tokens: int
    expected: Estimate
    need: Mapping[str, int]
    began_s: float
    looks: list[Look] = field(default_factory=list)
    answered: list[Mapping[str, str | int]] = field(default_factory=list)

    @property
    def estimate(self) -> Mapping[str, float]:
        """Tokens of an answer, in figures; read off only when somebody asks."""
        levels = {f"p{round(100 * level)}": float(self.expected.quantile(level)) for level in (0.5, 0.9, 0.99)}
        return {"mean": round(self.expected.mean, 1), **levels}

    def document(self, now_s: float) -> dict[str, Any]:
        """Plain values; moments as seconds since the prompt was planned, and that as an age."""
        plain = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in ("looks", "answered", "began_s", "expected")
        }
        looks = [look.document(self.began_s) for look in self.looks]
        return {
            **plain,
            "estimate": self.estimate,
            "age_s": round(now_s - self.began_s, 3),
            "looks": looks,
            "answered": list(self.answered),
        }

    def look(self, look: Look) -> None:
        if len(self.looks) >= _LOOKS:
            del self.looks[_LOOKS // 2]
        self.looks.append(look)


@dataclass(slots=True)
class Decisions:
    """By request, the oldest forgotten beyond `most`."""

    most: int
    _kept: OrderedDict[str, list[Decision]] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._kept)

    def open(self, request_id: str, plan: Plan, policy: str, rule: str, now_s: float) -> Decision | None:
        if self.most < 1:
            return None
        need = plan.need
        decision = Decision(
            request_id,
            plan.features.tenant,
            policy,
            rule,
            plan.klass.name,
            plan.features.prompt_tokens,
            plan.answers,
            plan.limit_tokens,
            plan.estimate,
            {"growth_tokens": need.growth_tokens, "likely_tokens": need.likely_tokens},
            now_s,
        )
        self._kept.setdefault(request_id, []).append(decision)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
        return decision

    def keep(self, most: int) -> None:
        """So many from now on; the oldest beyond are forgotten."""
        self.most = most
        while len(self._kept) > most:
            self._kept.popitem(last=False)

    def of(self, request_id: str) -> list[Decision]:
        return self._kept.get(request_id, [])


def outcome(seen: Placement | Wait | NoRoute) -> str:
    match seen:
        case Placement():
            return "placed"
        case Wait():
            return "waits"
        case NoRoute(why=why):
            return why.value


def _score(seen: Seen, decode: DecodeCandidate) -> Scored:
    need = seen.need
    route = choose_path(need, decode, seen.fleet, seen.rules)
    free = decode.free_after(need)
    score = free / max(1, decode.blocks_total)
    if decode.worker_id in seen.never or not decode.could_ever(need):
        verdict = "never fits"
    elif route is None:
        verdict = "no way to its KV"
    elif decode.closed:
        verdict = "has just refused"
    elif not decode.fits(need):
        verdict = "no room"
    else:
        verdict = "fits, but has failed it" if decode.worker_id in seen.avoid else "fits"
    path = route[0].value if route else ""
    return Scored(decode.worker_id, verdict, round(score, 4), round(free, 1), decode.cached_tokens, path)
