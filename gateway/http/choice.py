"""One choice's way from tokens to text: detokenizing, stop strings, counting."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.parsers.reader import Reader
from gateway.parsers.said import CallDelta, Said, joined
from gateway.request.answer import Piece
from gateway.request.errors import Reason, RequestError
from gateway.text.base import Tokenizer
from gateway.text.stops import StopMatcher
from proto.work import FinishReason, TokenLogprobs


@dataclass(frozen=True, slots=True)
class TextRules:
    """What a request says about its answers' text."""

    tokenizer: Tokenizer
    stops: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special_tokens: bool = True
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    reader: Callable[[], Reader] | None = None
    kept: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Shown:
    """What one piece adds to the answer. `tokens` and `logprobs` are exactly those that count."""

    text: str
    reasoning: str = ""
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish: str | None = None
    stop_reason: str | int | None = None
    calls: tuple[CallDelta, ...] = ()


NOTHING = Shown("")

#: The `stop_reason` of an answer that the policy ended for want of KV; its finish_reason is `length`.
KV_BUDGET = "kv_budget"
#: The `finish_reason` of an answer with calls, unless it was cut short.
TOOL_CALLS = "tool_calls"


class Choice:
    """The state spans both legs of a request, which therefore cannot show in the text (B-12, B-17)."""

    __slots__ = (
        "_detokenizer",
        "_matcher",
        "_reader",
        "_rules",
        "count",
        "finished",
        "index",
        "opened",
        "stopped_by_text",
    )

    def __init__(self, index: int, prompt: tuple[int, ...], rules: TextRules) -> None:
        self.index = index
        self.count = 0
        self.finished = False
        self.opened = False
        self.stopped_by_text = False
        self._rules = rules
        self._detokenizer = rules.tokenizer.detokenizer(
            skip_special_tokens=rules.skip_special_tokens, context=prompt[-8:], kept=rules.kept
        )
        self._matcher = StopMatcher(rules.stops, include=rules.include_stop) if rules.stops else None
        self._reader = rules.reader() if rules.reader else None

    @property
    def reasoning_tokens(self) -> int:
        return self._reader.reasoning_tokens if self._reader else 0

    def take(self, piece: Piece) -> Shown:
        """After a stop string has matched, whatever the engine still sends counts for nothing."""
        if self.finished:
            return NOTHING
        if piece.finish is FinishReason.ABORT:
            raise RequestError(Reason.DECODE_FAILED, "The engine gave up this request.")
        if self._matcher is not None or self._reader is not None:
            return self._take_watching(piece)
        tokens = piece.tokens
        self.count += len(tokens)
        if piece.finish is None:
            return Shown(self._detokenizer.push(tokens) if tokens else "", tokens=tokens, logprobs=piece.logprobs)
        shown = self._visible(piece)
        text = (self._detokenizer.push(shown) if shown else "") + self._detokenizer.flush()
        return self._end([Said(text)], piece)

    def _take_watching(self, piece: Piece) -> Shown:
        """Token by token, because the token that completes a stop string is the last one that counts."""
        matcher, said = self._matcher, list[Said]()
        visible = len(self._visible(piece))
        for at, token in enumerate(piece.tokens, start=1):
            self.count += 1
            if at > visible:
                break
            text = self._detokenizer.push((token,))
            if self._reader is not None:
                self._reader.came(text)
            said.append(self._read(self._unstopped(text)))
            if matcher is not None and matcher.matched is not None:
                return self._end_by_text(said, matcher.matched, piece, at)
            if self._reader is not None and self._reader.done:
                return self._end_by_text(said, None, piece, at)
        if piece.finish is None:
            return _shown(said, piece.tokens, piece.logprobs)
        said.append(self._read(self._unstopped(self._detokenizer.flush())))
        if matcher is not None and matcher.matched is not None:
            return self._end_by_text(said, matcher.matched, piece, len(piece.tokens))
        return self._end(said, piece)

    def _unstopped(self, text: str) -> str:
        if self._matcher is None:
            return text
        return self._matcher.push(text, armed=self.count > self._rules.min_tokens)

    def _read(self, text: str) -> Said:
        return self._reader.push(text) if self._reader else Said(text)

    def _visible(self, piece: Piece) -> tuple[int, ...]:
        """The token that made the engine stop (EOS, stop id) counts and has logprobs, but is not part of the text."""
        if piece.finish is FinishReason.STOP and not self._rules.include_stop:
            return piece.tokens[:-1]
        return piece.tokens

    def _end(self, said: list[Said], piece: Piece) -> Shown:
        assert piece.finish is not None
        if self._matcher is not None:
            said.append(self._read(self._matcher.flush()))
        last = piece.tokens[-1] if piece.tokens else -1
        by_id = piece.finish is FinishReason.STOP and last in self._rules.stop_token_ids
        reason = KV_BUDGET if piece.capped else last if by_id else None
        return self._last(said, piece, len(piece.tokens), piece.finish, reason)

    def _end_by_text(self, said: list[Said], stop: str | None, piece: Piece, used: int) -> Shown:
        """By a stop string, or with the only call that is wanted."""
        self.stopped_by_text = piece.finish is None
        return self._last(said, piece, used, FinishReason.STOP, stop)

    def _last(self, said: list[Said], piece: Piece, used: int, finish: FinishReason, reason: str | int | None) -> Shown:
        self.finished = True
        if self._reader is not None:
            said.append(self._reader.flush())
        called = self._reader is not None and self._reader.called and finish is FinishReason.STOP
        word = TOOL_CALLS if called else finish.value
        return _shown(said, piece.tokens[:used], piece.logprobs[:used], word, reason)


def _shown(
    said: list[Said],
    tokens: tuple[int, ...],
    logprobs: tuple[TokenLogprobs, ...],
    finish: str | None = None,
    stop_reason: str | int | None = None,
) -> Shown:
    one = said[0] if len(said) == 1 else joined(said)
    return Shown(one.content, one.reasoning, tokens, logprobs, finish, stop_reason, one.calls)
