"""Where the room goes: one part of the rule that ships taken away at a time, under more than can be served.

    python -m benchmarks.admission.ablation                  # two seeds; some 3 s of CPU time a run
    python -m benchmarks.admission.ablation --arm "as shipped" --arm "no moves" --seeds 5

A small model of the fleet of `benchmarks.admission`, ten times as quick: the workers' own books, rules and caution in ticks of
16 decode steps, answers whose lengths are known as a distribution. No prefill, no line but first come first served, steps
of one length, moves that take no time. Its figures are for comparing arms with one another.
"""

import argparse
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from benchmarks.admission.contenders import PAST_FUTURE_RESERVE
from benchmarks.admission.contest import mean_of
from benchmarks.admission.fleet import WINDOW_TOKENS
from benchmarks.admission.trial import TOKEN_S
from benchmarks.admission.workloads import WORKLOADS
from decode_pool.expected import Admission, Expected
from gateway.policy.admission import AdmissionRule, Candidate, KvBook, Oracle, PastFuture
from gateway.policy.estimate.estimate import Estimate
from loadgen.workload.spec import Catalogue
from proto.reservation import ReserveRequest

SIZE = 16
BLOCKS = 370_576 // SIZE
WORKERS, STEPS = 4, 16
TICK_S = STEPS * 0.037
PATIENCE_S = 8.0
START_S, END_S = 350.0, 1_350.0
#: Of the blocks of a worker that takes an answer in an emergency, so many stay free; an answer moves so often at most.
SPARE, MOVES = 0.005, 2
_DRAWN = 20_000


@dataclass(eq=False, slots=True)
class Answer:
    """`known`: its length is told, as that of those under way at the start is."""

    name: str
    prompt: int
    length: int
    came_s: float
    known: bool
    tokens: int = field(init=False)  # prompt and generated
    moved: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.prompt

    @property
    def generated(self) -> int:
        return self.tokens - self.prompt

    @property
    def blocks(self) -> int:
        return -(-(self.tokens + 1) // SIZE)


class Worker:
    def __init__(self, expected: Expected) -> None:
        self.expected = expected
        self.running: list[Answer] = []
        self.preempted: deque[Answer] = deque()

    @property
    def used(self) -> int:
        return sum(answer.blocks for answer in self.running)

    @property
    def growth(self) -> int:
        """Blocks that everybody gains in a tick."""
        return len(self.running) * STEPS // SIZE

    def would_take(self, candidate: Candidate, answer: Answer) -> bool:
        fits = not self.preempted and self.used + answer.blocks <= BLOCKS
        return fits and self.expected.decide(candidate, 0).admitted

    def take(self, candidate: Candidate, answer: Answer) -> None:
        request = ReserveRequest("", answer.name, answer.tokens, 0, 0.0)
        self.expected.promise(candidate, request, [answer.name])
        self.expected.started(answer.name, answer.tokens)
        self.running.append(answer)

    def step(self) -> int:
        """Everybody gains a tick's tokens, and some end by that; tokens gained."""
        before = self.expected.gained
        for answer in self.running:
            gained = min(STEPS, answer.length - answer.generated)
            answer.tokens += gained
            self.expected.gained += gained
            if answer.generated >= answer.length:
                self.expected.ended(answer.name, running=True, finished=True)
        self.running = [answer for answer in self.running if answer.generated < answer.length]
        return self.expected.gained - before

    def leave(self, answer: Answer) -> None:
        """For another worker."""
        self.running.remove(answer)
        self.expected.ended(answer.name, running=True)
        self.expected.answer_left()

    def make_room(self) -> int:
        """The engine preempts who came last, or lets back who fits; tokens that are computed anew."""
        used, again, short = self.used, 0, False
        while used > BLOCKS:
            self.preempted.appendleft(self.running.pop())
            used, short = used - self.preempted[0].blocks, True
        while self.preempted and not short and used + self.preempted[0].blocks <= BLOCKS:
            back = self.preempted.popleft()
            self.running.append(back)
            used, again = used + back.blocks, again + back.tokens
        return again

    def look(self) -> None:
        self.expected.keep_step(self.running)
        self.expected.book.freshen()


@dataclass(frozen=True, slots=True)
class Arm:
    """`tune` takes something away from a worker's forecast; `rule` puts another one in its place."""

    name: str
    admission: Admission = field(default_factory=Admission)
    moves: bool = True
    tune: Callable[[Expected], None] = lambda expected: None
    rule: Callable[[], AdmissionRule] | None = None
    exact: bool = False

    def worker(self) -> Worker:
        bare = Admission(pool_share=0.0, spread=0.0, learn=False, rule=self.rule()) if self.rule else self.admission
        expected = Expected(BLOCKS, SIZE, WINDOW_TOKENS, bare)
        self.tune(expected)
        return Worker(expected)


def _no_caution(expected: Expected) -> None:
    expected.caution.most = 0.0


def _no_common_error(expected: Expected) -> None:
    expected.book = KvBook(BLOCKS, SIZE)


_NO_POOL = Admission(pool_share=0.0)
ARMS = (
    Arm("as shipped"),
    Arm("no caution", tune=_no_caution),
    Arm("no common error", tune=_no_common_error),
    Arm("no pool", _NO_POOL),
    Arm("no moves", moves=False),
    Arm("no moves, epsilon 0.04", Admission(epsilon=0.04), moves=False),
    Arm("(e) Past-Future", moves=False, rule=lambda: PastFuture(reserved_share=PAST_FUTURE_RESERVE)),
    Arm("(f) oracle", moves=False, rule=Oracle, exact=True),
)


@dataclass(slots=True)
class Found:
    """`served`: tokens/s by the mean length of an answer. `moves` a minute; the others are shares."""

    served: float
    used: float
    over: float
    recomputed: float
    moves: float


class Fleet:
    """So much of what the oracle completes comes; whoever has waited too long goes."""

    def __init__(self, arm: Arm, seed: int, load: float) -> None:
        self._arm, self._random = arm, np.random.default_rng((seed, 3))
        one = WORKLOADS["natural-reasoning"]
        drawn = [chain[0] for chain in Catalogue(None).mix([one.words]).draw(_DRAWN, np.random.default_rng((seed, 77)))]
        self._prompts = [demand.prompt_tokens for demand in drawn]
        self._lengths = np.array([demand.output_tokens for demand in drawn])
        self._estimate = Estimate.of_samples(self._lengths)
        self._rate = one.capacity_per_s * load
        self._number = count()
        self._line: deque[Answer] = deque()
        self._next_s = self._random.exponential(1.0 / self._rate)
        self.workers = [arm.worker() for _ in range(WORKERS)]
        self._begin()

    def run(self) -> Found:
        gained = again = moves = 0
        used: list[float] = []
        over = 0
        for now_s in np.arange(TICK_S, END_S, TICK_S).tolist():
            self._arrive(now_s)
            here = now_s >= START_S
            for worker in self.workers:
                gained += worker.step() * here
                moves += (self._relieve(worker) if self._arm.moves else 0) * here
                again += worker.make_room() * here
                worker.look()
            self._admit()
            if here:
                used += [worker.used / BLOCKS for worker in self.workers]
                over += sum(worker.used > BLOCKS - worker.expected.budget.pool_blocks for worker in self.workers)
        seconds = END_S - START_S
        served = gained / seconds / float(self._lengths.mean())
        return Found(served, float(np.mean(used)), over / len(used), again / gained, moves * 60.0 / seconds)

    def _begin(self) -> None:
        """Answers under way, met in proportion to their lengths, each at a random place."""
        at_once = round(self._rate * float(self._lengths.mean()) * TOKEN_S)
        held = 0
        for at in self._random.choice(_DRAWN, size=at_once, p=self._lengths / self._lengths.sum()).tolist():
            generated = int(self._random.random() * self._lengths[at])
            prompt = self._prompts[at] + generated
            held += prompt
            if held > 0.9 * WORKERS * BLOCKS * SIZE:
                return
            answer = Answer(
                f"b{next(self._number)}", prompt, max(1, int(self._lengths[at]) - generated), 0.0, known=True
            )
            emptiest = min(self.workers, key=lambda worker: worker.used)
            emptiest.take(self._candidate(answer), answer)

    def _arrive(self, now_s: float) -> None:
        while self._next_s <= now_s:
            at = int(self._random.integers(_DRAWN))
            name = f"r{next(self._number)}"
            self._line.append(Answer(name, self._prompts[at], int(self._lengths[at]), self._next_s, self._arm.exact))
            self._next_s += self._random.exponential(1.0 / self._rate)
        while self._line and now_s - self._line[0].came_s > PATIENCE_S:
            self._line.popleft()

    def _admit(self) -> None:
        while self._line:
            answer = self._line[0]
            candidate = self._candidate(answer)
            roomy = sorted(self.workers, key=lambda worker: worker.expected.outlook(0).peak_blocks)
            taker = next((worker for worker in roomy if worker.would_take(candidate, answer)), None)
            if taker is None:
                return
            taker.take(candidate, self._line.popleft())

    def _candidate(self, answer: Answer) -> Candidate:
        estimate = Estimate.exactly(answer.length) if answer.known else self._estimate
        limit = WINDOW_TOKENS - answer.prompt
        kin = None if answer.known else "all"
        return Candidate(answer.name, answer.prompt, estimate, limit, 0, answer.generated, kin=kin)

    def _relieve(self, worker: Worker) -> int:
        """What would be too much a tick later goes on where there is most room; who has least goes first."""
        moved = 0
        while worker.used + worker.growth > BLOCKS:
            other = min((one for one in self.workers if one is not worker), key=lambda one: one.used)
            room = (1.0 - SPARE) * BLOCKS - other.used - other.growth
            able = [answer for answer in worker.running if answer.moved < MOVES and answer.blocks <= room]
            if not able or other.preempted:
                break
            leaving = min(able, key=lambda answer: answer.blocks)
            worker.leave(leaving)
            leaving.moved += 1
            other.take(self._candidate(leaving), leaving)
            moved += 1
        return moved


def row(arm: Arm, found: Sequence[Found]) -> str:
    served, used, over, recomputed, moves = (
        mean_of(getattr(each, name) for each in found).value
        for name in ("served", "used", "over", "recomputed", "moves")
    )
    return f"| {arm.name} | {served:.3f} | {used:.1%} | {recomputed:.2%} | {over:.1%} | {moves:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", action="append", choices=[arm.name for arm in ARMS])
    parser.add_argument("--load", type=float, default=1.3)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    print(f"| {given.load:.0%} | served /s | KV used | recomputed | over | moves /min |\n|{' --- |' * 6}")
    for arm in ARMS:
        if not given.arm or arm.name in given.arm:
            found = [Fleet(arm, seed, given.load).run() for seed in range(101, 101 + given.seeds)]
            print(row(arm, found), flush=True)


if __name__ == "__main__":
    main()
