"""How much one tenant may ask for, and have in hand at once. Pure: the clock is a parameter."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from gateway.policy.fairness.bucket import Bucket

#: Retry-After of a concurrency limit while nothing is known about when a request in hand will end.
RETRY_AFTER_UNKNOWN_S = 1.0
#: Tenants known before those that would be treated like strangers are forgotten.
FORGET_ABOVE = 1024


class LimitReason(StrEnum):
    """The value is that of the refusal."""

    RATE = "rate_limited"
    CONCURRENCY = "concurrency_limited"


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one tenant; infinite is no limit. Tokens are prompt and expected output. Bursts in s of the rate.

    `concurrent` counts what runs and what waits.
    """

    requests_per_s: float = inf
    tokens_per_s: float = inf
    burst_s: float = 10.0
    concurrent: float = inf

    def __post_init__(self) -> None:
        if min(self.requests_per_s, self.tokens_per_s, self.concurrent) < 0 or self.burst_s <= 0:
            raise ValueError("limits must not be negative, burst_s must be greater than 0")

    def requests(self) -> Bucket:
        return Bucket(self.requests_per_s, max(1.0, self.requests_per_s * self.burst_s))

    def tokens(self) -> Bucket:
        return Bucket(self.tokens_per_s, self.tokens_per_s * self.burst_s)


@dataclass(frozen=True, slots=True)
class Limited:
    """A refusal. `retry_after_s` is exact for rates (if the tenant sends nothing else meanwhile), for concurrency as
    good as the forecast of when a request in hand ends; infinite when the limit is 0."""

    reason: LimitReason
    retry_after_s: float
    numbers: Mapping[str, float]


@dataclass(eq=False, slots=True)
class Pass:
    """One request let in. `ends_s` is when it is expected to be over; the caller may move it."""

    tenant: str
    tokens: float
    ends_s: float | None = None
    left: bool = False


@dataclass(slots=True)
class _Account:
    limits: Limits
    requests: Bucket
    tokens: Bucket
    passes: set[Pass] = field(default_factory=set)

    def adopt(self, limits: Limits, now_s: float) -> None:
        requests, tokens = limits.requests(), limits.tokens()
        self.limits = limits
        self.requests.adopt(requests.rate_per_s, requests.burst, now_s)
        self.tokens.adopt(tokens.rate_per_s, tokens.burst, now_s)

    def idle(self, now_s: float) -> bool:
        """A stranger would be treated the same."""
        return not self.passes and self.requests.full(now_s) and self.tokens.full(now_s)


@dataclass(slots=True)
class Limiter:
    """Who is let into the queue at all. A refused request costs nothing."""

    default: Limits = field(default_factory=Limits)
    tenants: Mapping[str, Limits] = field(default_factory=dict)
    _accounts: dict[str, _Account] = field(default_factory=dict)
    _forget_above: int = FORGET_ABOVE

    def __len__(self) -> int:
        """Requests let in that have not left. 0 at idle."""
        return sum(len(account.passes) for account in self._accounts.values())

    def adopt(self, default: Limits, tenants: Mapping[str, Limits], now_s: float) -> None:
        """Other limits from the next request on; who is in stays in, and what was spent stays spent."""
        self.default, self.tenants = default, tenants
        for tenant, account in self._accounts.items():
            account.adopt(tenants.get(tenant, default), now_s)

    def enter(self, tenant: str, tokens: float, now_s: float, ends_s: float | None = None) -> Pass | Limited:
        """`tokens` are those of the prompt and the expected answer."""
        account = self._account(tenant, now_s)
        refusal = _too_many(account, now_s) or _too_fast(account, tokens, now_s)
        if refusal:
            return refusal
        account.requests.take(1.0, now_s)
        account.tokens.take(tokens, now_s)
        entered = Pass(tenant, tokens, ends_s)
        account.passes.add(entered)
        return entered

    def answered(self, entered: Pass) -> None:
        """Its client has all of it: it is in hand no more, though what it took is still to be counted."""
        if account := self._accounts.get(entered.tenant):
            account.passes.discard(entered)

    def leave(self, entered: Pass, tokens: float, now_s: float) -> None:
        """It has ended after so many tokens in all; the estimate is set right. A second call does nothing."""
        if entered.left:
            return
        entered.left = True
        account = self._account(entered.tenant, now_s)  # forgotten, if it was answered long ago
        account.passes.discard(entered)
        account.tokens.take(tokens - entered.tokens, now_s)

    def in_hand(self, tenant: str) -> int:
        """What the tenant has running or queued."""
        account = self._accounts.get(tenant)
        return len(account.passes) if account else 0

    def _account(self, tenant: str, now_s: float) -> _Account:
        if tenant not in self._accounts:
            if len(self._accounts) >= self._forget_above:
                self._accounts = {name: kept for name, kept in self._accounts.items() if not kept.idle(now_s)}
                self._forget_above = 2 * len(self._accounts) + FORGET_ABOVE
            limits = self.tenants.get(tenant, self.default)
            self._accounts[tenant] = _Account(limits, limits.requests(), limits.tokens())
        return self._accounts[tenant]


def _too_many(account: _Account, now_s: float) -> Limited | None:
    in_hand, allowed = len(account.passes), account.limits.concurrent
    if in_hand + 1 <= allowed:
        return None
    ends = [each.ends_s - now_s for each in account.passes if each.ends_s is not None and each.ends_s > now_s]
    wait_s = min(ends, default=RETRY_AFTER_UNKNOWN_S) if allowed >= 1 else inf
    return Limited(LimitReason.CONCURRENCY, wait_s, {"in_hand": in_hand, "allowed": allowed})


def _too_fast(account: _Account, tokens: float, now_s: float) -> Limited | None:
    wait_s = max(account.requests.wait_s(1.0, now_s), account.tokens.wait_s(tokens, now_s))
    if wait_s <= 0:
        return None
    numbers = {
        "tokens": tokens,
        "tokens_available": account.tokens.level(now_s),
        "tokens_per_s": account.limits.tokens_per_s,
        "requests_available": account.requests.level(now_s),
        "requests_per_s": account.limits.requests_per_s,
    }
    return Limited(LimitReason.RATE, wait_s, {name: number for name, number in numbers.items() if number < inf})
