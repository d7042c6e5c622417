"""When a canary is ended by itself: it refuses more, or answers later, than the version in force (R-79). Pure."""

from dataclasses import dataclass

from gateway.policy_versions.outcomes import Account

#: The canary is judged after every so many of its requests.
EVERY = 10


@dataclass(frozen=True, slots=True)
class Guard:
    """`refused`: by how much the canary's share of refused and failed requests may exceed that of the version in force.
    `ttft`: the most that its p90 of TTFT may be of the other's. None: not judged. Not before both have had `least`
    requests."""

    refused: float | None = None
    ttft: float | None = None
    least: int = 50

    def __post_init__(self) -> None:
        if self.refused is not None and not 0 <= self.refused < 1:
            raise ValueError("refused must be in [0, 1)")
        if self.ttft is not None and not 1 <= self.ttft < float("inf"):
            raise ValueError("ttft must be 1 or more")
        if self.least < 1:
            raise ValueError("least must be 1 or more")

    def due(self, canary: Account) -> bool:
        watches = self.refused is not None or self.ttft is not None
        return watches and canary.requests >= self.least and canary.requests % EVERY == 0

    def objection(self, in_force: Account, canary: Account) -> str:
        """Why the canary must end, in one line; empty while it may go on."""
        if min(in_force.requests, canary.requests) < self.least:
            return ""
        usual, found = _refused(in_force), _refused(canary)
        if self.refused is not None and found - usual > self.refused:
            return f"it refused or failed {found:.1%} of its requests, the version in force {usual:.1%}"
        normal_s, late_s = in_force.ttft_p90_s, canary.ttft_p90_s
        if self.ttft is not None and normal_s and late_s and late_s > self.ttft * normal_s:
            return f"its p90 of TTFT was {late_s * 1e3:.0f} ms, that of the version in force {normal_s * 1e3:.0f} ms"
        return ""


def _refused(account: Account) -> float:
    return (account.refused.total() + account.failed.total()) / account.requests
