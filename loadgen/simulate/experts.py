"""What experts that are chosen unevenly did in a run: tokens by rank, and how much longer the slowest had."""

from collections.abc import Sequence

from engine.simulated.cost import Profile
from gateway.policy.routing import Path
from loadgen.simulate.simulation import Outcome
from proto.worker import Role


def expert_notes(outcome: Outcome, profiles: Sequence[tuple[Role, Profile]]) -> tuple[str, ...]:
    """One for each pool whose profile says how uneven its experts are; of roles as they were at the end."""
    if not any(profile.expert_load for _, profile in profiles):
        return ()
    by_role: dict[str, int] = {}
    for one in outcome.workers:
        computed = one.prompt_tokens - one.cached_prompt_tokens + one.recomputed_tokens + one.generated_tokens
        by_role[one.role] = by_role.get(one.role, 0) + computed
    # An engine counts prompts whose KV it read from another as its own.
    handed_over = sum(one.planned_prompt_tokens for one in outcome.results if one.path == Path.REMOTE)
    by_role[Role.DECODE] = max(0, by_role.get(Role.DECODE, 0) - handed_over)
    return tuple(_note(role, profile, by_role.get(role, 0)) for role, profile in profiles if profile.expert_load)


def _note(role: Role, profile: Profile, tokens: int) -> str:
    load = profile.expert_load
    assert load is not None
    words = f"experts of {role.value} workers: Gini {load.gini:g}, seed {load.seed}, the most popular has {load.hottest:.1f}"
    words += " times its share"
    if load.ranks < 2:
        return f"{words}; not spread over ranks, so none waits for another"
    ranks = ", ".join(f"{count / 1e6:.3g}" for count in load.tokens_by_rank(tokens))
    return (
        f"{words}; a layer's slowest of {load.ranks} ranks {load.slowest:.2f} times its share; "
        f"million tokens a layer by rank: {ranks}"
    )
