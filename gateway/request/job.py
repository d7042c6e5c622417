"""What the prompts of one request share, and the account they keep together."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.cluster.cluster import Cluster
from gateway.config import GatewayConfig
from gateway.request.answer import Piece
from gateway.request.answers import Answers
from gateway.request.desk import Desk
from gateway.request.intent import Intent
from gateway.request.observer import Observer
from gateway.request.phase import Phase
from gateway.request.record import Record

_ORDER = (Phase.QUEUED, Phase.RESERVED, Phase.PREFILLING, Phase.HANDED_OFF, Phase.DECODING)


@dataclass(slots=True)
class Job:
    intent: Intent
    record: Record
    answers: Answers
    cluster: Cluster
    desk: Desk
    config: GatewayConfig
    observer: Observer
    clock: Callable[[], float]
    _phases: dict[int, Phase] = field(default_factory=dict)

    def enter(self, prompt: int, phase: Phase) -> None:
        """One prompt has moved. The record shows the least advanced prompt that is still under way."""
        self._phases[prompt] = phase
        self._show()

    def leave(self, prompt: int) -> None:
        self._phases.pop(prompt, None)
        if self._phases:
            self._show()

    def move(self, phase: Phase) -> None:
        before = self.record.phase
        now_s = self.clock()
        self.record.enter(phase, now_s)
        self.observer.phase_changed(self.record, before, phase, now_s)

    def push(self, piece: Piece) -> None:
        """Counts a piece and passes it on; a stopped choice counts no more."""
        if piece.choice not in self.answers.open_choices:
            return
        record, now_s = self.record, self.clock()
        if piece.tokens:
            if record.first_token_s is None:
                record.first_token_s = now_s
            record.last_token_s = now_s
            record.completion_tokens += len(piece.tokens)
        if piece.first and piece.choice % self.intent.n == 0:
            record.cached_tokens += piece.cached_tokens
        self.answers.push(piece)

    def _show(self) -> None:
        phase = min(self._phases.values(), key=_ORDER.index)
        if phase is not self.record.phase:
            self.move(phase)
