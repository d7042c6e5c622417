"""What one failed leg leads to. Pure."""

from dataclasses import dataclass, replace
from enum import StrEnum

from gateway.config import OnPrefillFailure


class Next(StrEnum):
    OTHER = "other"  # the prefill leg again, elsewhere
    LOCAL = "local"  # prefill on the decode worker that holds the reservation
    AGAIN = "again"  # from the reservation on
    GIVE_UP = "give_up"


@dataclass(frozen=True, slots=True)
class Budget:
    """Retries left for one prompt. Each kind of leg may be tried once more, never twice.

    `together` bounds them all: whatever goes wrong, one prompt is computed at most 1 + `together` times.
    """

    prefill: int = 1
    decode: int = 1
    expiries: int = 2
    together: int = 2

    def after_prefill(self) -> "Budget":
        return replace(self, prefill=self.prefill - 1, together=self.together - 1)

    def after_decode(self) -> "Budget":
        return replace(self, decode=self.decode - 1, together=self.together - 1)

    def after_expiry(self) -> "Budget":
        return replace(self, expiries=self.expiries - 1, together=self.together - 1)


def after_prefill_failure(policy: OnPrefillFailure, budget: Budget, retryable: bool, another: bool) -> Next:
    """`another` says whether a prefill worker is left that has not just failed."""
    if not retryable or min(budget.prefill, budget.together) <= 0:
        return Next.GIVE_UP
    match policy:
        case OnPrefillFailure.OTHER_THEN_LOCAL:
            return Next.OTHER if another else Next.LOCAL
        case OnPrefillFailure.OTHER:
            return Next.OTHER if another else Next.GIVE_UP
        case OnPrefillFailure.LOCAL:
            return Next.LOCAL
        case OnPrefillFailure.FAIL:
            return Next.GIVE_UP


def after_decode_failure(budget: Budget, retryable: bool, decode_tokens: int) -> Next:
    """Once the decode leg has given a token the answer is the client's: nothing is tried again behind its back."""
    if not retryable or decode_tokens > 0 or min(budget.decode, budget.together) <= 0:
        return Next.GIVE_UP
    return Next.AGAIN


def after_expiry(budget: Budget) -> Next:
    """A ticket too old to dispatch is prefilled again (B-31), but not for ever."""
    return Next.OTHER if min(budget.expiries, budget.together) > 0 else Next.GIVE_UP
