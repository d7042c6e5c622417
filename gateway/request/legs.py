"""The only place that shapes what the two pools are asked to do. Pure.

An answer may be built over several engines: `carried` is what earlier legs have already given to the client, so a leg
runs on prompt + carried. Classic disaggregation carries nothing or one token; hand-off after K tokens carries K.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from gateway.policy.control.plan import Asked
from gateway.policy.estimate import Features
from gateway.request.intent import Intent
from proto.precedence import Precedence
from proto.sampling import Sampling
from proto.work import Work

_INT64 = 2**63


class Mode(StrEnum):
    """What becomes of the token that the prefill leg samples."""

    CARRY = "carry"  # shown at once; the decode leg goes on after it
    REPLAY = "replay"  # dropped; the decode leg samples the first token itself
    LOCAL = "local"  # no prefill leg: the decode leg computes the prompt too


class Carried(StrEnum):
    """What a carried token means for the answer."""

    GO_ON = "go_on"
    STOP = "stop"
    LENGTH = "length"
    REPLAY = "replay"  # it may not be shown after all


@dataclass(frozen=True, slots=True)
class Leg:
    """One prompt of an intent at one point of its answer, ready to be sent somewhere.

    `window` is the longest prompt + answer that the decode worker takes. `work_id` is ours and unique per leg; `precedence` is
    ours, too.
    """

    intent: Intent
    prompt: int
    work_id: str
    window: int
    answer: int = 0
    carried: tuple[int, ...] = ()
    precedence: Precedence = Precedence.ORDINARY

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.intent.prompts[self.prompt] + self.carried

    @property
    def sampling(self) -> Sampling:
        """What is still wanted, limits counted from here; every answer of one prompt draws from its own seed."""
        wanted = self.intent.sampling
        seed = wanted.seed
        if seed is not None and self.intent.n > 1:
            seed = (seed + self.answer + _INT64) % (2 * _INT64) - _INT64  # still a signed 64-bit number
        return replace(
            wanted,
            max_tokens=answer_limit(self.intent, self.prompt, self.window) - len(self.carried),
            min_tokens=max(0, wanted.min_tokens - len(self.carried)),
            seed=seed,
        )

    def work(self, sampling: Sampling) -> Work:
        intent = self.intent
        return Work(self.work_id, self.tokens, sampling, intent.priority, intent.cache_salt, self.precedence)


def precedence_of(*, read: bool, begun: bool, late: bool) -> Precedence:
    """Where roles are fluid. `read`: its KV is read, not computed; `begun`: its client has some of the answer, which is
    computed once more; `late`: it was not expected in time when it came."""
    if read:
        return Precedence.BEGUN
    return Precedence.LATE if late and not begun else Precedence.ORDINARY


def answer_limit(intent: Intent, prompt: int, window: int) -> int:
    """The longest answer to one prompt: what was declared, or what the window leaves (B-71)."""
    if intent.declared_max_tokens:
        return intent.sampling.max_tokens
    return max(1, min(intent.sampling.max_tokens, window - len(intent.prompts[prompt])))


def planned(intent: Intent, prompt: int, window: int, kv_tokens: int) -> Asked:
    """What the policy is told of one prompt; no text. `window`, `kv_tokens`: of the largest decode worker."""
    features = Features(
        model=intent.model,
        prompt_tokens=len(intent.prompts[prompt]),
        tenant=intent.tenant,
        effort=intent.effort,
        thinking_budget=intent.thinking_budget,
        tools=intent.tools,
        structured=intent.sampling.structured is not None,
    )
    limit_tokens = answer_limit(intent, prompt, window)
    return Asked(features, intent.n, limit_tokens, intent.declared_max_tokens, window, kv_tokens)


def remote_mode(intent: Intent, tokens: int, block_size_tokens: int) -> Mode:
    """CARRY where it cannot change the answer, REPLAY otherwise. `tokens` is the length of the prefill leg.

    Seeds and penalties count draws and output tokens, a grammar must see its first token once (B-19), several answers
    must not share a token, and at a block boundary the reader would need one more KV block than the writer holds.
    """
    return Mode.CARRY if carriable(intent) and tokens % block_size_tokens else Mode.REPLAY


def carriable(intent: Intent) -> bool:
    """Whether the answer is the same wherever it goes on after some of its tokens."""
    sampling = intent.sampling
    seeded = sampling.seed is not None and sampling.temperature > 0
    penalised = sampling.presence_penalty != 0 or sampling.frequency_penalty != 0
    return not (seeded or penalised or sampling.structured is not None or intent.n > 1)


def begun_tokens(leg: Leg, wanted: int, block_size_tokens: int, window: int) -> int:
    """How many tokens the prefill worker gives before it hands off, if `wanted` is what the policy asks for.

    1 is the classic hand-off: where the sampling's state cannot be carried, and for a leg that follows another. At a
    block boundary it is one more, or one fewer where there is no room for that. `window`: of the prefill worker.
    """
    prompt, left = len(leg.tokens), leg.sampling.max_tokens
    if wanted < 2 or leg.carried or not carriable(leg.intent):
        return 1
    most = min(left, window - prompt)
    count = min(wanted, most)
    if count < left and (prompt + count - 1) % block_size_tokens == 0:
        count += 1 if count < most else -1
    return max(1, count)


def begin_leg(leg: Leg, tokens: int) -> Work:
    """The first tokens of an answer, under its own stop rules: what ends within them is not handed off."""
    wanted = leg.sampling
    prompt_logprobs = None if leg.carried else wanted.prompt_logprobs
    least = min(tokens, wanted.min_tokens)
    return leg.work(replace(wanted, max_tokens=tokens, min_tokens=least, prompt_logprobs=prompt_logprobs))


def prefill_leg(leg: Leg, mode: Mode) -> Work:
    """Exactly one token, ended by length and by nothing else, or there is no hand-off (B-01 to B-06)."""
    wanted = leg.sampling
    return leg.work(
        replace(
            wanted,
            max_tokens=1,
            min_tokens=min(1, wanted.min_tokens),
            stop_token_ids=(),
            ignore_eos=True,
            structured=None,
            logprobs=wanted.logprobs if mode is Mode.CARRY else None,
            prompt_logprobs=None if leg.carried else wanted.prompt_logprobs,
        )
    )


def decode_leg(leg: Leg, mode: Mode) -> Work:
    """The rest of the answer. Prompt logprobs only where this leg computes the prompt, and only once (B-07)."""
    wanted = leg.sampling
    computes_prompt = mode is Mode.LOCAL and leg.answer == 0 and not leg.carried
    return leg.work(replace(wanted, prompt_logprobs=wanted.prompt_logprobs if computes_prompt else None))


def judge_carried(token: int, wanted: Sampling, eos_token_ids: tuple[int, ...]) -> Carried:
    """Applies the stop rules that the prefill leg ran without. `wanted` is the leg's sampling before the token.

    Below `min_tokens` an engine masks stop tokens; the prefill leg could not, so such a token must be drawn again.
    """
    stops = token in wanted.stop_token_ids or (not wanted.ignore_eos and token in eos_token_ids)
    if stops:
        return Carried.STOP if wanted.min_tokens == 0 else Carried.REPLAY
    return Carried.LENGTH if wanted.max_tokens == 1 else Carried.GO_ON
