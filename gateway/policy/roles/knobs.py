"""The frozen settings of the role policy, and what it is asked to keep. Nothing here is set per traffic."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Aims:
    """The limits that good answers keep: time to the first token, and mean time of each later one."""

    ttft_s: float
    tpot_s: float

    def __post_init__(self) -> None:
        if not (self.ttft_s > 0 and self.tpot_s > 0):
            raise ValueError("aims are times above 0")


@dataclass(frozen=True, slots=True)
class Knobs:
    """`tpot_share`, `ttft_share`, `kv_share`: how much of a limit, and of a worker's KV, the policy plans to use; the
    rest is for what differs from the mean. `handoff_steps`: what a hand-off takes of an answer's time, in steps of the worker
    that receives it. `credit_tokens`: over how many tokens, at most, an answer spends what it has saved. `foresight`: of
    what it would save if steps stayed as short as they were of late, this share counts as saved. `rare_share`: while fewer of the
    steps have prompts in them, prompts are rare, and what was saved is spent on those in hand. `pressed_share`: of the
    answers of a worker, those that allow the shortest steps and are passed over.
    `largest_step_tokens` bounds a step with its answers, `smallest_chunk_tokens` what it has of prompts; they are equal where
    engines take no other limit (`bounds_chunks` False). `size_slack`: how much slower prompts may be computed in shorter steps.
    `ease_share`: of the limit on the first token, what the prompts in hand may take where room for answers is short.
    `late_share`: a prompt that is not expected within this multiple of the limit goes behind those that are; infinite where
    engines keep the order of arrival. `late_tokens`: so many of a worker's tokens may go behind, and the rest of one prompt: who
    comes then keeps its turn, so that a fleet that is asked for more than it can do does not leave out whoever is long.
    `first_tokens`: of an answer that is handed over, given before that by a worker that has the time; 1 for none but the first.

    `leans` False: nobody ever leans to prefill, so nothing is handed off between fluid workers. `every_s`: how often the split
    is looked at; `gain`: how much more traffic another split must carry to be taken; `memory_s`: over how long the demand is
    averaged. `look_s`: how often a worker with prompts in hand is told its budget.
    """

    tpot_share: float = 0.97
    ttft_share: float = 0.6
    kv_share: float = 0.9
    handoff_steps: float = 2.7
    credit_tokens: float = 64.0
    foresight: float = 0.3
    rare_share: float = 0.125
    pressed_share: float = 0.1
    leans: bool = True
    largest_step_tokens: int = 2048
    smallest_chunk_tokens: int = 64
    size_slack: float = 0.02
    ease_share: float = 0.2
    late_share: float = 1.0
    late_tokens: int = 4096
    first_tokens: int = 1
    every_s: float = 1.0
    gain: float = 0.1
    memory_s: float = 20.0
    look_s: float = 0.1

    @property
    def bounds_chunks(self) -> bool:
        return self.smallest_chunk_tokens < self.largest_step_tokens
