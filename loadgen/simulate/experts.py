"""What experts that are chosen unevenly did in a run: tokens by rank, and how much longer the slowest had."""

from collections.abc import Iterable, Sequence

from engine.simulated.cost import Profile
from loadgen.simulate.simulation import WorkerFigures
from proto.worker import Role


def expert_notes(figures: Iterable[WorkerFigures], profiles: Sequence[tuple[Role, Profile]]) -> tuple[str, ...]:
    """One for each pool whose profile says how uneven its experts are. `figures` of roles as they were at the end."""
    by_role: dict[str, int] = {}
    for one in figures:
        computed = one.prompt_tokens - one.cached_prompt_tokens + one.recomputed_tokens + one.generated_tokens
        by_role[one.role] = by_role.get(one.role, 0) + computed
    return tuple(_note(role, profile, by_role.get(role.value, 0)) for role, profile in profiles if profile.expert_load)


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
