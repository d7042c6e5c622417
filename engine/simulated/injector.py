"""Fault scripts at work: which rule strikes which request, and what the engine asks on its way."""

import asyncio
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.base import EngineFrame, EngineOutput, EngineStats
from engine.simulated import faults
from engine.simulated.faults import AnyRequestRule, Leg, Phase, RequestRule, Script
from proto.fault import Fault
from proto.ticket import Ticket
from proto.work import SequenceDelta

R = TypeVar("R", bound=RequestRule)


@dataclass(frozen=True, slots=True)
class Afflictions:
    """The rules that strike one request, decided when it was submitted."""

    rules: tuple[AnyRequestRule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)

    def find(self, kind: type[R]) -> R | None:
        return next((rule for rule in self.rules if isinstance(rule, kind)), None)

    def hang(self, phase: Phase) -> faults.Hang | None:
        return next((r for r in self.rules if isinstance(r, faults.Hang) and r.phase is phase), None)

    def notification(self, message: str) -> faults.Notification | None:
        return next(
            (r for r in self.rules if isinstance(r, faults.Notification) and r.message in (message, "any")), None
        )


HEALTHY = Afflictions()


class Injector:
    """One engine's active script. Without one, every question has the harmless answer."""

    def __init__(self, script: Script | None = None) -> None:
        self.use(script or Script())

    def use(self, script: Script) -> None:
        """Replaces the script; requests already struck stay struck."""
        self.script = script
        self._matches = [0] * len(script.faults)
        self._random = random.Random(script.seed)
        self._started_s = time.monotonic()
        self._steps = 0
        self._held: list[EngineOutput] = []
        self._changed = asyncio.Event()
        self._engine = {type(rule): rule for rule in script.faults if not isinstance(rule, RequestRule)}

    def strike(self, request_id: str, leg: Leg, prompt_tokens: int) -> Afflictions:
        """Called once a request; counts matches, so that the n-th can be meant."""
        if not self.script.faults:
            return HEALTHY
        hit = []
        for index, rule in enumerate(self.script.faults):
            if not isinstance(rule, RequestRule) or not rule.where.matches(request_id, leg, prompt_tokens):
                continue
            self._matches[index] += 1
            late = self._matches[index] - rule.first
            if late < 0 or (rule.times is not None and late >= rule.times):
                continue
            if rule.probability >= 1 or self._random.random() < rule.probability:
                hit.append(rule)
        return Afflictions(tuple(hit)) if hit else HEALTHY

    def now(self) -> float:
        """The engine's own idea of the time."""
        real = time.monotonic()
        clock = self._engine.get(faults.Clock)
        if not isinstance(clock, faults.Clock):
            return real
        return self._started_s + clock.offset_s + (real - self._started_s) * clock.rate

    def step_s(self, seconds: float) -> float:
        self._steps += 1
        spike = self._engine.get(faults.StepTime)
        if isinstance(spike, faults.StepTime) and self._steps % spike.every == 0:
            return seconds * spike.factor + spike.add_s
        return seconds

    async def pass_engine_hang(self) -> None:
        """Returns at once, unless the engine is meant to hang now."""
        hang = self._engine.get(faults.EngineHang)
        if isinstance(hang, faults.EngineHang) and self._steps >= hang.after_steps:
            del self._engine[faults.EngineHang]
            await wait(self._changed, hang.for_s)

    async def pass_hang(self, hang: faults.Hang | None) -> None:
        if hang is not None:
            await wait(asyncio.Event(), hang.for_s)

    def frames(self, outputs: list[EngineOutput]) -> Iterable[EngineFrame]:
        framing = self._engine.get(faults.Framing)
        if not isinstance(framing, faults.Framing):
            return (tuple(outputs),) if outputs else ()
        self._held += outputs
        if framing.steps_per_frame and self._steps % framing.steps_per_frame and not _ends(self._held):
            return ()
        outputs, self._held = self._held, []
        size = framing.outputs_per_frame or max(1, len(outputs))
        return [tuple(outputs[start : start + size]) for start in range(0, len(outputs), size)]

    def stats(self, stats: EngineStats) -> EngineStats:
        if faults.Full in self._engine:
            return replace(stats, blocks_used=stats.blocks_total)
        return stats

    def ticket(self, ticket: Ticket, struck: Afflictions) -> Ticket | None:
        if struck.find(faults.HandoffMissing):
            return None
        return replace(ticket, epoch=f"{ticket.epoch}-before") if struck.find(faults.StaleEpoch) else ticket


def deltas(struck: Afflictions, generated: int, delta: SequenceDelta) -> SequenceDelta:
    """The delta as the script wants it reported."""
    wrong = struck.find(faults.WrongCount)
    if wrong is not None:
        if generated == 1 and wrong.cached_tokens is not None:
            delta = replace(delta, cached_tokens=wrong.cached_tokens)
        if generated == wrong.double_token:
            delta = replace(delta, tokens=delta.tokens * 2, logprobs=delta.logprobs * 2)
        if generated == wrong.drop_token:
            delta = replace(delta, tokens=(), logprobs=())
    return delta


def midway(struck: Afflictions, generated: int) -> Fault | None:
    """The fault that ends the request before token `generated` + 1."""
    rule = struck.find(faults.FailMidway)
    if rule is None or generated < rule.after_tokens:
        return None
    return Fault(rule.fault, f"scripted: {rule.fault} after {rule.after_tokens} tokens")


def _ends(outputs: list[EngineOutput]) -> bool:
    """An end is never held back: nothing may follow that would bring it out."""
    return any(output.delta.ended for output in outputs)


async def wait(event: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
