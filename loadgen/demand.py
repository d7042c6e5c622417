"""What one request asks for: lengths and labels, no text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """`prefix` holds block ids of `block_tokens` tokens each: equal leading ids mean equal leading text.

    Sessions: `turn` counts from 0; `think_s` is the pause between the end of the previous answer and this turn,
    `service_s` the nominal time the previous answer takes when turns are placed on a fixed schedule.
    `at_s` is the arrival in the trace the demand came from, where it came from one, and `precision` that of the numbers it was
    answered with there: `bfloat16`, or `fp8/bfloat16` where weights and KV differ.
    """

    prompt_tokens: int
    output_tokens: int
    at_s: float | None = None
    prefix: tuple[int, ...] = ()
    block_tokens: int = 512
    tenant: str = ""
    klass: str = ""
    session: str = ""
    turn: int = 0
    think_s: float = 0.0
    service_s: float = 0.0
    patience_s: float | None = None
    leave_after_tokens: int | None = None
    text: str | None = None
    precision: str = ""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens


#: The turns of one session in order; a lone request is a chain of one.
Chain = tuple[Demand, ...]
