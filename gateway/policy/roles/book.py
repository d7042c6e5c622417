"""What one worker has in hand, by the gateway's own account, and what each of its answers may still take."""

from dataclasses import dataclass, field
from heapq import nsmallest
from math import exp, inf

from gateway.policy.roles.backlog import Backlog
from gateway.policy.roles.knobs import Aims, Knobs
from gateway.policy.roles.law import StepLaw
from proto.worker import StepTotals

#: Steps that tell what a step takes of late, and how many have prompts in them.
_LATELY = 100
#: How sharply rare prompts are told from those that keep coming.
_SHARPNESS = 4


@dataclass(slots=True)
class Answer:
    """`tokens` are expected after the first, which came at `first_s`. It joined after `begun` steps of the worker."""

    first_s: float
    tokens: float
    begun: float


@dataclass(slots=True)
class Book:
    """Of the prompts: `backlog` is still to be computed. Of the answers: those in `decoding` do, `coming` will;
    `handed` has the tokens of those that others hand over. `context_tokens` is the KV that all hold on the mean over
    their lives."""

    backlog: Backlog = field(default_factory=Backlog)
    coming: int = 0
    context_tokens: float = 0.0
    handed: dict[str, float] = field(default_factory=dict)
    decoding: dict[str, Answer] = field(default_factory=dict)
    kv_tokens: float = inf  # all that its engine has, and how many sequences that runs at once
    sequences: float = inf
    steps: int = 0
    budget: int = 0  # tokens of a step, as the worker was told last
    _lately_s: float = inf  # what a step took of late
    _crowded: float = 1.0  # share of the steps of late that had prompts in them
    _looked_s: float = 0.0
    _fresh: list[tuple[Answer, float]] = field(default_factory=list)  # who began since the last look, and when
    _step_s: float | None = None  # what the most pressed answer allows, as of the last look; None when not known
    _most_tokens: int | None = None  # of a step, within that
    _step_tokens: int | None = None  # of those, as many as the prompts in hand want

    @property
    def answers(self) -> int:
        return len(self.decoding)

    @property
    def promised(self) -> int:
        return self.answers + self.coming

    @property
    def reading_tokens(self) -> float:
        """KV that a step reads now."""
        answers = len(self.decoding)
        return self.context_tokens * answers / (answers + self.coming) if answers else 0.0

    def held(self, knobs: Knobs, context_tokens: float = 0.0, answers: int = 0) -> float:
        """Share of its KV, or of its sequences where that is more, that its answers take on the mean over their lives, with
        so many more."""
        of_kv = (self.context_tokens + context_tokens) / (knobs.kv_share * self.kv_tokens)
        return max(of_kv, (len(self.decoding) + self.coming + answers) / self.sequences)

    def queue(self, key: str, tokens: int, *, late: bool) -> None:
        """A prompt that is to be computed here."""
        self.backlog.add(key, tokens, late=late)
        self._changed()

    def enter(self, key: str, context_tokens: float, output_tokens: float, *, handed: bool) -> None:
        self.coming += 1
        self.context_tokens += context_tokens
        if handed:
            self.handed[key] = max(1.0, output_tokens - 1)
            self._changed()

    def begin(self, key: str, first_s: float, output_tokens: float, now_s: float) -> None:
        """A coming answer decodes from now on."""
        self.coming -= 1
        self.handed.pop(key, None)
        one = self.decoding[key] = Answer(first_s, max(1.0, output_tokens - 1), self.steps)
        self._fresh.append((one, now_s))
        self._changed()

    def leave(self, key: str, context_tokens: float) -> None:
        if self.decoding.pop(key, None) is None:
            self.coming -= 1
            self.handed.pop(key, None)
        self.context_tokens -= context_tokens
        self._changed()

    def stepped(self, steps: StepTotals, now_s: float) -> None:
        """Everyone who decoded through the window has one token a step more, who came in between his share of it."""
        if now_s > self._looked_s:
            for one, since_s in self._fresh:
                one.begun += steps.count * max(0.0, since_s - self._looked_s) / (now_s - self._looked_s)
            self._fresh.clear()
        self.backlog.computed(steps.chunk_tokens)
        if steps.count:
            kept = exp(-steps.count / _LATELY)
            mean_s, crowded = steps.seconds / steps.count, steps.chunk_steps / steps.count
            self._lately_s = mean_s + kept * (self._lately_s - mean_s) if self.steps else mean_s
            self._crowded = crowded + kept * (self._crowded - crowded)
        self.steps += steps.count
        self._looked_s = now_s
        self._changed()

    def step_s(self, law: StepLaw, aims: Aims, knobs: Knobs) -> float:
        """How long a step may take so that nearly every answer keeps its mean. What it has saved, and some of what it surely
        will, it may spend soon, as long steps come only while there are prompts: where these are rare, in the steps that those
        in hand take, and else over more, as others will come. What it is short of it makes up for over
        all that is left of it. Who cannot keep its mean any more does not hold the others up."""
        if self._step_s is None:
            self._step_s = self._pressed_s(knobs, knobs.tpot_share * aims.tpot_s, law)
        return self._step_s

    def _pressed_s(self, knobs: Knobs, aim_s: float, law: StepLaw) -> float:
        least_s, steps, now_s = law.step_s(self.answers, self.reading_tokens), self.steps, self._looked_s
        ahead_s = knobs.foresight * max(0.0, aim_s - self._lately_s)
        in_hand = 1 + self.backlog.tokens / knobs.largest_step_tokens
        crowded = min(1.0, self._crowded / knobs.rare_share) ** _SHARPNESS
        # who comes loses some steps on its way, which count as long as they are here
        allowed = [aim_s * tokens / (tokens + knobs.handoff_steps) for tokens in self.handed.values()]
        for one in self.decoding.values():
            done = steps - one.begun
            left = max(one.tokens - done, 1.0)
            credit_s = done * aim_s + one.first_s - now_s + left * ahead_s
            soon = min(left, knobs.credit_tokens, in_hand + crowded * left)
            allowed.append(aim_s + credit_s / (soon if credit_s > 0 else left))
        able = [may_s for may_s in allowed if may_s > least_s]
        if able:
            return nsmallest(int(knobs.pressed_share * len(able)) + 1, able)[-1]
        return aim_s if self.decoding else inf

    def step_tokens(self, law: StepLaw, aims: Aims, knobs: Knobs) -> int:
        """Tokens of the next step, of prompts and answers. A long step and a bare one take longer than two with half of the
        prompts each, so where room for answers is short, prompts are spread over the steps: answers end sooner. The shorter room
        is, the more of the limit on the first token the prompts in hand may take. Where there is plenty, nobody has anything
        from shorter steps; and where more is left of them than was thought, nobody knows how much."""
        if self._step_tokens is None:
            most = self.most_tokens(law, aims, knobs)
            answers = self.answers + len(self.handed)
            if knobs.bounds_chunks and answers and self.backlog.tokens:
                ease_s = min(1.0, self.held(knobs)) * knobs.ease_share * aims.ttft_s
                enough = law.enough(self.backlog.tokens, ease_s, answers, self.reading_tokens, most)
                most = max(enough, answers + knobs.smallest_chunk_tokens)
            self._step_tokens = most
        return self._step_tokens

    def most_tokens(self, law: StepLaw, aims: Aims, knobs: Knobs) -> int:
        """Of a step, as far as its answers allow."""
        if self._most_tokens is None:
            answers = self.answers + len(self.handed)
            least = answers + knobs.smallest_chunk_tokens
            if knobs.bounds_chunks and not answers:
                least = max(least, knobs.largest_step_tokens)
            elif knobs.bounds_chunks:
                may_s, most = self.step_s(law, aims, knobs), knobs.largest_step_tokens
                least = max(least, law.fastest(may_s, answers, self.reading_tokens, most, knobs.size_slack))
            self._most_tokens = least
        return self._most_tokens

    def most_chunk_tokens(self, law: StepLaw, aims: Aims, knobs: Knobs) -> int:
        """Prompt tokens of such a step."""
        return self.most_tokens(law, aims, knobs) - self.answers - len(self.handed)

    def first_token_s(self, tokens: int, law: StepLaw, aims: Aims, knobs: Knobs) -> float:
        """When a prompt of so many uncached tokens would be computed here, after those in hand that go before it, or after half
        of a step of the answers."""
        answers, ahead = len(self.decoding), self.backlog.ahead(tokens)
        reading = self.context_tokens * answers / (answers + self.coming) if answers else 0.0
        chunk = self.most_tokens(law, aims, knobs) - answers - len(self.handed)
        whole, rest = divmod(ahead + tokens, chunk)
        wait_s = law.step_s(answers, reading) / 2 if answers and not ahead else 0.0
        whole_s = whole * law.step_s(answers, reading, chunk) if whole else 0.0
        return wait_s + whole_s + (law.step_s(answers, reading, rest) if rest else 0.0)

    def steps_s(
        self, context_tokens: float, tokens: int, law: StepLaw, aims: Aims, knobs: Knobs, haste: float
    ) -> tuple[float, float]:
        """The mean step that an answer of so much KV would see here, with a prompt of `tokens` computed here, and without. Prompts
        make the steps of the answers longer: what those in hand take is spread over an answer of `haste`, if it is not so short
        that all of its steps have prompts in them."""
        answers = len(self.decoding)
        promised, context = answers + self.coming + 1, self.context_tokens + context_tokens
        if not answers:
            return (alone_s := law.step_s(promised, context)), alone_s
        backlog, bare_s = self.backlog.tokens, law.step_s(promised, context)
        with_s, alone_s = bare_s + (backlog + tokens) * law.token_s * haste, bare_s + backlog * law.token_s * haste
        if not knobs.bounds_chunks:
            return with_s, alone_s
        chunk = self.most_chunk_tokens(law, aims, knobs)
        full_s = law.step_s(promised, context, min(backlog + tokens, chunk))
        return min(with_s, full_s), min(alone_s, law.step_s(promised, context, min(backlog, chunk)))

    def _changed(self) -> None:
        self._step_s = self._most_tokens = self._step_tokens = None


def handed_aim_s(haste: float, aims: Aims, knobs: Knobs) -> float:
    """What a step may take where answers of that `haste` are handed over: each has waited `handoff_steps` in between."""
    return aims.tpot_s * min(knobs.tpot_share, 1 / (1 + knobs.handoff_steps * haste))
