"""One request on its way, as the books of the role policy have it."""

from dataclasses import dataclass


@dataclass(slots=True)
class Trip:
    decode: str
    prefill: str
    uncached_tokens: int
    context_tokens: float
    output_tokens: float
    late: bool = False
    first_s: float | None = None
    decoding: bool = False

    @property
    def handed(self) -> bool:
        return self.prefill != self.decode
