"""The live fleet and its running answers, as the policy of overruns and moves sees them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gateway.cluster.cluster import Cluster
from gateway.cluster.leases import LeaseKind
from gateway.cluster.worker import Worker
from gateway.policy.admission.balance import Standing
from gateway.policy.admission.move import By, Target, emergency_growth
from gateway.policy.admission.overrun import Answer, Pressure, gained_blocks
from gateway.policy.estimate import Estimate, Features
from gateway.policy.prefill_choice import ASSUMED_LINK_BYTES_PER_S
from gateway.request.moving import Order

#: A worker's epoch and the number of its state.
Word = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Growing:
    """One answer that a decode worker produces now. `ways`: how it could go on elsewhere; `leaving`: it is about to. `been`: the
    workers that it has left for want of room. `left`: the one that still holds its KV, while that is read. `guest`: no worker had
    room for it but one that computes prompts for others.
    """

    name: str
    worker_id: str
    klass: str
    prompt_tokens: int
    generated_tokens: int
    features: Features
    estimate: Estimate
    cap: Callable[[], None]
    move: Callable[[Order], None]
    ways: frozenset[By] = frozenset()
    leaving: bool = False
    been: frozenset[str] = frozenset()
    left: str = ""
    guest: bool = False

    def blocks(self, size_tokens: int) -> int:
        return -(-(self.prompt_tokens + self.generated_tokens) // size_tokens)


def answer_of(each: Growing, worker: Worker, targets: Iterable[Target]) -> Answer:
    """What is still to come of it is expected on the mean, given what it has. That takes time, and is left out where it has no
    way to go, or is too large for every target as it is."""
    info, state = worker.info, worker.state
    tokens, size = each.prompt_tokens + each.generated_tokens, info.block_size_tokens
    held = each.blocks(size)
    ways = each.ways if any(held <= one.free_blocks for one in targets) else frozenset[By]()
    left = each.estimate.given(each.generated_tokens).mean if ways else 0.0
    return Answer(
        each.name,
        each.klass,
        held,
        tokens,
        each.generated_tokens,
        tokens * info.kv_bytes_per_token,
        growth_blocks=-(-round(left) // size),
        left_s=left * (state.step_time_s if state else 0.0),
        ways=ways,
        been=each.been,
    )


def growth_blocks(worker: Worker, look_s: float) -> int:
    """What the running answers gain until those are gone that leave at the next look."""
    state = worker.state
    return (
        0 if state is None else gained_blocks(state.running, state.step_time_s, look_s, worker.info.block_size_tokens)
    )


def pressure(worker: Worker, answers: Sequence[Growing], look_s: float, targets: Sequence[Target]) -> Pressure:
    """`answers`: those that run there, and those that have left it and whose KV it still holds. `look_s`: until the next look.
    Those that leave count as gone, and so do those that have left."""
    state, size = worker.state, worker.info.block_size_tokens
    assert state is not None
    staying = [each for each in answers if each.worker_id == worker.worker_id and not each.leaving]
    gone = sum(each.blocks(size) for each in answers if each.leaving or each.left == worker.worker_id)
    return Pressure(
        blocks_total=state.blocks_total,
        pool_blocks=state.pool_blocks,
        held_blocks=state.blocks_used - gone,
        growth_blocks=growth_blocks(worker, look_s),
        answers=[answer_of(each, worker, targets) for each in staying],
        targets=targets,
    )


def targets_for(source: Worker, cluster: Cluster, others: Iterable[Worker], *, emergency: bool = False) -> list[Target]:
    """Where the source's answers could go on: with room after the growth of what is there, or in an emergency with room now. KV
    is read only by pairs that have shaken hands; the others can compute it."""
    found = []
    for other in others:
        if other is source or not _suits(other, source):
            continue
        link = cluster.pairs.links.get(other.worker_id, {}).get(source.worker_id)
        rate = 0.0 if link is None else link.bytes_per_s or ASSUMED_LINK_BYTES_PER_S
        room = _room_now(other) if emergency else _room(other)
        if room >= 1:
            found.append(Target(other.worker_id, room, rate))
    return found


def _room(worker: Worker) -> float:
    free, headroom = worker.blocks_free, worker.headroom_blocks
    return free if headroom is None else min(headroom, free)


def _room_now(worker: Worker) -> float:
    """Of what is neither used nor reserved, what everybody's growth leaves for a moment; the worker has the last word."""
    state = worker.state
    answers = max(state.running + state.waiting, state.reservations) if state else 0
    return worker.blocks_free - emergency_growth(answers, worker.info.block_size_tokens)


def _suits(other: Worker, source: Worker) -> bool:
    """It takes answers, as long ones and in blocks of the same size."""
    mine, its = source.info, other.info
    willing = other.ready and other.role.decodes
    return willing and its.max_model_len >= mine.max_model_len and its.block_size_tokens == mine.block_size_tokens


def standing(worker: Worker) -> Standing:
    """By what its engine has in use. What is promised besides counts where an answer is to go (`targets_for`): only KV that is
    in use can be moved, and a worker whose promises are many and answers short is not full."""
    state = worker.state
    total = (state.blocks_total if state else 0) or worker.info.blocks_total
    return Standing(worker.worker_id, total, state.blocks_used if state else 0)


def word(worker: Worker) -> Word:
    """Its newest: what was decided by it is not decided again before there is another one."""
    state = worker.state
    return (state.epoch, state.sequence) if state is not None else ("", 0)


def fills(worker: Worker) -> bool:
    """Half of its KV is in use, and its engine can hand answers over."""
    state = worker.state
    return state is not None and worker.info.hands_over and 2 * state.blocks_used >= state.blocks_total


def to_empty(worker: Worker) -> bool:
    """It takes no more answers, and runs some of this gateway's."""
    state = worker.state
    if state is None or (state.role.decodes and not state.draining):
        return False
    return runs(worker)


def runs(worker: Worker) -> bool:
    """Some of this gateway's answers."""
    return worker.connection is not None and worker.leases.count(LeaseKind.SEQUENCE) > 0


def draws(worker: Worker) -> bool:
    """Whether it has an emergency pool, and that is used up: it has to get rid of answers itself."""
    state = worker.state
    return state is not None and 0 < state.pool_blocks <= state.pool_blocks_used


def keen(targets: Sequence[Target], leaning: Collection[str]) -> Iterator[list[Target]]:
    """Those that are to decode, then all: workers that lean to prefill get answers only where no other has room for them."""
    willing = [one for one in targets if one.worker_id not in leaning]
    yield willing
    if len(willing) < len(targets):
        yield list(targets)
