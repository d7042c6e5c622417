"""Session mixes: conversations and tool-calling agents whose context grows turn by turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from loadgen.demand import Chain, Demand
from loadgen.failure import LoadgenError

_BLOCK = 64
#: Ids below this belong to the common system prompt; every session's stream of text lies above.
_SYSTEM_IDS = 1 << 20
_SESSION_IDS = 1 << 14


@dataclass(frozen=True, slots=True)
class LogNormal:
    """By median and the ratio of its 90th percentile to it."""

    median: float
    p90_ratio: float

    def draw(self, rng: np.random.Generator) -> float:
        return self.median * float(np.exp(rng.standard_normal() * np.log(self.p90_ratio) / 1.2815516))


@dataclass(frozen=True, slots=True)
class SessionFamily:
    """A turn's prompt is everything before it plus `added` new tokens (a message, or a tool's output).

    Turns are geometric with mean `turns`, at most `max_turns`; a session ends before its context passes
    `max_context`. The text of a session is one growing stream, so turns share real prefixes; the first
    `system_tokens` are common to all sessions of the family. `nominal_tpot_s` places turns on a fixed schedule.
    """

    name: str
    title: str
    turns: float
    max_turns: int
    system_tokens: int
    added: LogNormal
    output: LogNormal
    think_s: LogNormal
    max_context: int = 32768
    nominal_tpot_s: float = 0.03

    def __post_init__(self) -> None:
        if not 1 <= self.turns <= self.max_turns or self.max_turns > 200:
            raise LoadgenError(f"workload: {self.name} needs 1 ≤ turns ≤ max turns ≤ 200, not {self.turns:g}")

    @property
    def mean_turns(self) -> float:
        """Of a sample: the context limit cuts some sessions short."""
        return _mean_turns(self)

    def notes(self) -> Sequence[str]:
        return (
            f"{self.title}; synthetic, not fitted to a source; later prompts contain planned answers, "
            "not the target's, so a prefix cache can hit up to the previous prompt",
        )

    def draw(self, count: int | None, rng: np.random.Generator) -> Sequence[Chain]:
        if count is None:
            raise LoadgenError(f"{self.name} is endless: say how many requests or for how long")
        return [self._session(number, stream) for number, stream in enumerate(rng.spawn(count))]

    def _session(self, number: int, rng: np.random.Generator) -> Chain:
        wanted = min(int(rng.geometric(1 / self.turns)), self.max_turns)
        chain: list[Demand] = []
        context, service = self.system_tokens, 0.0
        for turn in range(wanted):
            prompt = context + max(1, round(self.added.draw(rng)))
            output = max(1, round(self.output.draw(rng)))
            think = self.think_s.draw(rng) if turn else 0.0
            if prompt + output > self.max_context:
                if turn:
                    break
                prompt, output = min(prompt, self.max_context // 2), min(output, self.max_context // 2)
            chain.append(
                Demand(
                    prompt,
                    output,
                    prefix=self._ids(number, prompt),
                    block_tokens=_BLOCK,
                    session=f"{self.name}-{number}",
                    turn=turn,
                    think_s=think,
                    service_s=service,
                )
            )
            context, service = prompt + output, output * self.nominal_tpot_s
        return tuple(chain)

    def _ids(self, number: int, prompt_tokens: int) -> tuple[int, ...]:
        system = self.system_tokens // _BLOCK
        own = _SYSTEM_IDS + number * _SESSION_IDS
        return tuple(i if i < system else own + i for i in range(-(-prompt_tokens // _BLOCK)))


@cache
def _mean_turns(family: SessionFamily) -> float:
    sample = family.draw(2000, np.random.default_rng(0))
    return sum(map(len, sample)) / len(sample)


SESSIONS = {
    family.name: family
    for family in (
        SessionFamily(
            "chat-sessions",
            "multi-turn conversations, mean 4 turns, think time 10 s",
            turns=4,
            max_turns=40,
            system_tokens=256,
            added=LogNormal(60, 5),
            output=LogNormal(200, 3),
            think_s=LogNormal(10, 4),
        ),
        SessionFamily(
            "agent-sessions",
            "tool-calling chains, mean 12 calls, tool time 1.5 s, growing context",
            turns=12,
            max_turns=100,
            system_tokens=2048,
            added=LogNormal(400, 6),
            output=LogNormal(120, 4),
            think_s=LogNormal(1.5, 5),
        ),
    )
}
