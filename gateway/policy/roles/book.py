"""What one worker has in hand, by the gateway's own account, and what its answers have saved of their time."""

from dataclasses import dataclass

from gateway.policy.roles.demand import haste_of, spread_up
from gateway.policy.roles.knobs import Aims, Knobs
from gateway.policy.roles.law import StepLaw, Steps


@dataclass(slots=True)
class Book:
    """Of the prompts: `backlog_tokens` are still to be computed. Of the answers: `answers` decode here, `coming` will;
    `context_tokens` is the KV that both hold on the mean over their lives. `haste` adds up what one step more takes of an
    answer's mean (see `haste_of`), `handed_haste` and `handed_squares` that of those that are prefilled elsewhere.

    `credit_s`: what the answers here have saved against the aim, or overdrawn; what is older than an answer is forgotten.
    """

    backlog_tokens: int = 0
    answers: int = 0
    coming: int = 0
    context_tokens: float = 0.0
    haste: float = 0.0
    handed_haste: float = 0.0
    handed_squares: float = 0.0
    credit_s: float = 0.0

    @property
    def promised(self) -> int:
        return self.answers + self.coming

    @property
    def length_tokens(self) -> float:
        """Of an answer here: the harmonic mean, as the short ones feel a long step most."""
        return max(1.0, self.promised / self.haste) if self.promised and self.haste > 0 else 1.0

    @property
    def reading_tokens(self) -> float:
        """KV that a step reads now."""
        return self.context_tokens * self.answers / self.promised if self.promised else 0.0

    def enter(self, context_tokens: float, output_tokens: float, *, handed: bool) -> None:
        self.coming += 1
        self._count(1, context_tokens, output_tokens, handed)

    def leave(self, context_tokens: float, output_tokens: float, *, handed: bool, decoding: bool) -> None:
        if decoding:
            self.answers -= 1
        else:
            self.coming -= 1
        self._count(-1, context_tokens, output_tokens, handed)

    def _count(self, sign: int, context_tokens: float, output_tokens: float, handed: bool) -> None:
        haste = haste_of(output_tokens)
        self.context_tokens += sign * context_tokens
        self.haste += sign * haste
        self.handed_haste += sign * handed * haste
        self.handed_squares += sign * handed * haste * haste

    def stepped(self, steps: Steps, aims: Aims, knobs: Knobs) -> None:
        if not steps.count:
            return
        if not self.answers:
            self.credit_s = 0.0
            return
        kept = (1 - 1 / self.length_tokens) ** steps.count
        self.credit_s = self.credit_s * kept + steps.count * self.aim_s(aims, knobs) - steps.seconds

    def aim_s(self, aims: Aims, knobs: Knobs) -> float:
        """Of a step. Who was handed here has lost some steps on the way, which the others must make up for."""
        return handed_aim_s(spread_up(self.promised, self.handed_haste, self.handed_squares), aims, knobs)

    def step_s(self, aims: Aims, knobs: Knobs) -> float:
        """How long a step may take: the aim, and what the credit adds when it is spread over an answer."""
        return self.aim_s(aims, knobs) + self.credit_s / (knobs.credit_share * self.length_tokens)

    def chunk_tokens(self, law: StepLaw, aims: Aims, knobs: Knobs) -> int:
        """Prompt tokens of the next step."""
        if not self.answers:
            return knobs.largest_chunk_tokens
        tokens = law.chunk_within(self.step_s(aims, knobs), self.answers, self.reading_tokens)
        return int(min(max(tokens, knobs.smallest_chunk_tokens), knobs.largest_chunk_tokens))

    def first_token_s(self, tokens: int, law: StepLaw, aims: Aims, knobs: Knobs) -> float:
        """When a prompt of so many uncached tokens would be computed here, after those in hand."""
        chunk = self.chunk_tokens(law, aims, knobs)
        steps = (self.backlog_tokens + tokens) / chunk
        return steps * law.step_s(self.answers, self.reading_tokens, chunk)


def handed_aim_s(haste: float, aims: Aims, knobs: Knobs) -> float:
    """What a step may take where answers of that `haste` are handed over: each has waited `handoff_steps` in between."""
    return aims.tpot_s * min(knobs.tpot_share, 1 / (1 + knobs.handoff_steps * haste))
