"""One prefill in flight: what the engine has said of it so far."""

import asyncio
from dataclasses import dataclass, field, replace

from engine.base import EngineOutput
from proto.fault import Fault
from proto.work import FinishReason, PrefillDone, PromptLogprobs, TokenLogprobs
from transfer.leases import Lease


@dataclass(slots=True, eq=False)
class Leg:
    """`name` is the engine's; empty until it was submitted."""

    request_id: str
    name: str = ""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: PromptLogprobs = ()
    cached_tokens: int = 0
    queue_s: float = 0.0
    compute_s: float = 0.0
    finish: FinishReason | None = None
    fault: Fault | None = None
    lease: Lease | None = None
    _begun: bool = False

    def add(self, output: EngineOutput) -> None:
        delta = output.delta
        if not self._begun:
            self._begun = True
            self.cached_tokens = delta.cached_tokens
            self.prompt_logprobs = delta.prompt_logprobs
            self.queue_s = delta.queue_s
            self.compute_s = output.compute_s
        self.tokens.extend(delta.tokens)
        self.logprobs.extend(delta.logprobs)
        self.finish, self.fault = delta.finish, delta.fault
        self.ended = self.ended or delta.ended
        self.news.set()

    def cancel(self, fault: Fault) -> None:
        self.fault = fault
        self.ended = True
        self.news.set()

    def part(self) -> PrefillDone:
        """What has come since the part before."""
        part = PrefillDone(
            tokens=tuple(self.tokens),
            ticket=None,
            finish=self.finish,
            logprobs=tuple(self.logprobs),
            cached_tokens=self.cached_tokens,
            prompt_logprobs=self.prompt_logprobs,
            queue_s=self.queue_s,
            compute_s=self.compute_s,
        )
        self.tokens, self.logprobs, self.prompt_logprobs = [], [], ()
        return part


def joined(parts: list[PrefillDone]) -> PrefillDone:
    """A whole leg: what it computed is told by the first part, how it ended by the last."""
    return replace(
        parts[0],
        tokens=tuple(token for part in parts for token in part.tokens),
        logprobs=tuple(entry for part in parts for entry in part.logprobs),
        ticket=parts[-1].ticket,
        finish=parts[-1].finish,
    )
