"""The only place that joins what the legs return into one answer. No I/O, no clock."""

from dataclasses import dataclass, field

from gateway.request.answer import Piece
from proto.work import FinishReason, PrefillDone, PromptLogprobs, SequenceDelta, TokenLogprobs


class MergeError(Exception):
    """An engine broke the contract: what it sent must not reach a client as if it were an answer."""


@dataclass(slots=True)
class Origin:
    """What the leg that computed a prompt says of it; shared by the prompt's answers (B-07, B-11)."""

    known: bool = False
    cached_tokens: int = 0
    prompt_logprobs: PromptLogprobs = ()

    def learn(self, cached_tokens: int, prompt_logprobs: PromptLogprobs) -> None:
        """Keeps the first report only: a later leg finds its predecessor's KV and calls it cached."""
        if not self.known:
            self.known = True
            self.cached_tokens = cached_tokens
            self.prompt_logprobs = prompt_logprobs


@dataclass(slots=True)
class Merge:
    """One choice. Counts and finish reasons come from engine token ids alone (B-12)."""

    choice: int
    limit: int
    wants_logprobs: bool
    origin: Origin
    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    finish: FinishReason | None = None
    _started: bool = False

    def carry(self, done: PrefillDone, finish: FinishReason | None) -> Piece:
        """The prefill leg's token, shown at once. `finish` is what the stop rules say of it."""
        piece = self._piece(done.tokens, done.logprobs, finish)
        if piece is None:
            raise MergeError("the prefill leg ended without a token")
        return piece

    def begin(self, part: PrefillDone) -> Piece | None:
        """Of a leg that gives the first tokens of the answer and hands off: its length ends the answer at the limit only."""
        self.origin.learn(part.cached_tokens, part.prompt_logprobs)
        if part.finish is FinishReason.ABORT:
            raise MergeError("the engine aborted a prefill that nobody had cancelled")
        ends = part.finish is FinishReason.STOP or len(self.tokens) + len(part.tokens) >= self.limit
        return self._piece(part.tokens, part.logprobs, part.finish if ends else None)

    def add(self, delta: SequenceDelta) -> Piece | None:
        """The next of a decode leg; None when there is nothing to show. Faults are the caller's business."""
        self.origin.learn(delta.cached_tokens, delta.prompt_logprobs)
        if delta.finish is FinishReason.ABORT:
            raise MergeError("the engine aborted a sequence that nobody had cancelled")
        goes_on = delta.finish is FinishReason.HANDED_OVER
        return self._piece(delta.tokens, delta.logprobs, None if goes_on else delta.finish)

    def cap(self) -> Piece | None:
        """The policy ends this choice with what it has; None when it has ended already or shown nothing yet."""
        if self.ended or not self._started:
            return None
        self.ended, self.finish = True, FinishReason.LENGTH
        return Piece(choice=self.choice, tokens=(), finish=FinishReason.LENGTH, capped=True)

    def stop(self) -> None:
        """The text layer ended this choice: whatever the engine still sends is not part of the answer."""
        self.ended = True

    def _piece(
        self, tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...], finish: FinishReason | None
    ) -> Piece | None:
        if self.ended:
            return None
        if not tokens and finish is None:
            return None
        if len(self.tokens) + len(tokens) > self.limit:
            raise MergeError(f"the engine sent {len(self.tokens) + len(tokens)} tokens, {self.limit} were asked for")
        if self.wants_logprobs and len(logprobs) != len(tokens):
            raise MergeError(f"the engine sent {len(logprobs)} logprobs for {len(tokens)} tokens")
        first, self._started = not self._started, True
        self.tokens.extend(tokens)
        self.ended, self.finish = finish is not None, finish
        return Piece(
            choice=self.choice,
            tokens=tokens,
            logprobs=logprobs if self.wants_logprobs else (),
            finish=finish,
            first=first,
            cached_tokens=self.origin.cached_tokens if first else 0,
            prompt_logprobs=self.origin.prompt_logprobs if first else (),
        )
