"""One answer that is sent to another worker, with engines that stand still until the test has done what it wants to."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from engine.simulated.faults import Script
from gateway.config import GatewayConfig
from gateway.policy.admission.move import By
from gateway.request.errors import RequestError
from gateway.request.intent import Intent
from gateway.request.moving import Order, Why
from gateway.request.standing import Growing
from proto.worker import Role
from tests.engine.simulated.hold import before_each_step
from tests.gateway.fleet import Answer, Fleet, Member, config, intent, prompt, until

DUO = (("d0", Role.DECODE), ("d1", Role.DECODE))
#: Answers move, though nothing here is ever full or uneven enough to say so; decode workers are pairs from the start.
MOVES: Mapping[str, Any] = {"balance": {"above": 1.0, "spread": 0.99}}
LONG = 400


def settings(**more: Any) -> GatewayConfig:
    """Decode workers compute their prompts, so that a hand-off is a move."""
    routing = {"on_no_prefill": "local", **more.pop("routing", {})}
    return config(policy=more.pop("policy", MOVES), routing=routing, **more)


def long(length: int = 40, **more: Any) -> Intent:
    return intent(prompt(length), max_tokens=LONG, ignore_eos=True, **more)


def running(one: Fleet, wanted: Intent) -> Growing | None:
    found = (each for each in one.lifecycle.overruns.growing() if each.name.startswith(wanted.request_id))
    return next(found, None)


def outcomes(one: Fleet) -> dict[str, int]:
    return {outcome: count for (_, outcome), count in one.lifecycle.overruns.moves.items()}


def asked(source: Member) -> bool:
    """Its engine was told to hand something over, and has not."""
    return any(each.handing_over for each in source.engine._generations.values())


def other_than(name: str) -> str:
    return "d1" if name == "d0" else "d0"


def send(each: Growing, by: By = By.TRANSFER, why: Why = Why.OVERRUN) -> str:
    target = other_than(each.worker_id)
    each.move(Order(why, target, by, {"move_bytes": 1.0}))
    return target


class Gate:
    """Every engine stands still when it has given an answer so many tokens, until it is let go."""

    def __init__(self, one: Fleet, tokens: int = 3) -> None:
        self._one = one
        self._tokens = tokens
        self._open = {name: asyncio.Event() for name in one.members}
        for name, member in one.members.items():
            before_each_step(member.engine.injector, partial(self._pass, name, member))

    async def _pass(self, name: str, member: Member) -> None:
        if any(each.generated >= self._tokens for each in member.engine._generations.values()):
            await self._open[name].wait()

    def let_go(self, *names: str) -> None:
        for name in names or self._open:
            self._open[name].set()


class Sending:
    """Its engines are behind a gate until `let_go`."""

    def __init__(self, one: Fleet, wanted: Intent, tokens: int = 3) -> None:
        self.one, self.wanted, self.tokens = one, wanted, tokens
        self.gate = Gate(one, tokens)
        self.task = asyncio.create_task(one.outcome(wanted))
        self.source_id = ""

    async def begun(self) -> Growing:
        """It has its tokens, and waits for more."""

        def there() -> bool:
            each = running(self.one, self.wanted)
            return self.task.done() or (each is not None and each.generated_tokens >= self.tokens)

        await until(there)
        each = running(self.one, self.wanted)
        assert each is not None, self.task
        self.source_id = each.worker_id
        return each

    @property
    def source(self) -> Member:
        return self.one.members[self.source_id]

    @property
    def target(self) -> Member:
        return self.one.members[other_than(self.source_id)]

    async def sent(self, by: By = By.TRANSFER, script: Mapping[str, Any] | None = None) -> None:
        """It is on its way, or is not to go; nothing computes yet. `script`: goes wrong at the target from now on."""
        each = await self.begun()
        if script is not None:
            self.target.engine.injector.use(Script.model_validate({"faults": [script]}))
        send(each, by)
        await until(lambda: outcomes(self.one) or asked(self.source) or self._left())

    def _left(self) -> bool:
        each = running(self.one, self.wanted)
        return each is None or each.worker_id != self.source_id

    def let_go(self, *names: str) -> None:
        self.gate.let_go(*names)

    async def outcome(self) -> tuple[Answer, RequestError | None]:
        self.let_go()
        return await self.task

    async def answer(self) -> Answer:
        """All of it, wherever it came from."""
        answer, error = await self.outcome()
        assert error is None, error
        return answer

    async def abandoned(self) -> None:
        """Its client leaves."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def patience_over(patch: pytest.MonkeyPatch) -> None:
    """The moment until which clients wait for their turn is past."""
    patch.setattr(Intent, "wait_until_s", property(lambda _: 0.0))
