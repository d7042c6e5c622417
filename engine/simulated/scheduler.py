"""Iteration-level scheduling with the semantics of vLLM V1, without tokens, time or I/O."""

from engine.simulated.decoders import Decoders
from engine.simulated.host_memory import HostMemory
from engine.simulated.intake import Intake
from engine.simulated.ledger import Ledger
from engine.simulated.limits import Limits
from engine.simulated.sequence import Sequence, Status
from engine.simulated.step import Counters, Step
from engine.simulated.waiting import Policy, waiting_queue


class Scheduler:
    """Running sequences first, in order of admission; then waiting ones while budget, slots and blocks last.

    Decode and prefill are not told apart: every sequence catches up with its total. A sequence that finds no
    block preempts from the tail (or the least important one); preempted ones start again at the head of the
    queue. Nobody is admitted in a step that preempted.

    Sequences that only decode are moved together as a cohort, as long as budget and blocks are enough for
    everyone; otherwise one by one, because then the order matters. Both ways plan the same.
    """

    def __init__(self, limits: Limits, *, together: bool = True, host: HostMemory | None = None) -> None:
        self.limits = limits
        self._ledger = Ledger(limits.blocks, limits.block_size, caching=limits.caching, host=host)
        self.pool = self._ledger.pool
        self.running: list[Sequence] = []
        self.waiting = waiting_queue(limits.policy)
        self.holding = waiting_queue(limits.policy)  # waiting, but with blocks: served before everyone else
        self._decoders = Decoders(self._ledger)
        self.cohort = self._decoders.cohort
        self.counters = Counters()
        self.version = 0  # changes with the composition of `running`
        self._together = together
        self._prefilling: dict[Sequence, None] = {}
        self._arrivals = 0
        self._intake = Intake(
            self._ledger, self.running, self.waiting, self.holding, self._prefilling, self.counters, self._plan
        )

    @property
    def waiting_count(self) -> int:
        return len(self.waiting) + len(self.holding)

    def add(self, sequence: Sequence) -> None:
        self._arrivals += 1
        sequence.arrival = self._arrivals
        self.waiting.add(sequence)

    def schedule(self) -> Step:
        """Plans the next iteration and accounts for its blocks and computed tokens."""
        step = Step()
        self._decoders.gather()
        budget = self._schedule_running(step)
        if not step.preempted and self.waiting_count:
            self._intake.admit(step, budget, self._long_prefill_threshold(), self.limits)
            self.version += len(step.admitted)
        return step

    def complete(self, step: Step) -> list[Sequence]:
        """The step has run. Returns those of its `scheduled` that have caught up: each has one token more now.

        So has every member of the cohort, without being listed.
        """
        self.cohort.sampled = self.cohort.clock
        done = [s for s in step.scheduled if s.status is Status.RUNNING and s.computed >= s.total]
        for sequence in done:
            sequence.total += 1
        if self._together:
            self._decoders.joining += [sequence for sequence in done if not sequence.loner]
        return done

    def complete_each(self, step: Step) -> list[Sequence]:
        """As `complete`, but returns members of the cohort too, and everyone in order of admission."""
        done = set(self.complete(step))
        return [s for s in self.running if s in done or (step.steady and s.steady)]

    def take_back(self, sequence: Sequence) -> None:
        """Undoes `complete` for a loner: the next step computes its token again."""
        sequence.total -= 1
        sequence.computed -= 1

    def repeatable(self, most: int) -> int:
        """How often a step of nothing but the cohort can be repeated before blocks run out, at most `most`.

        It need not look at waiting sequences: whoever found no room finds none while nothing but decoding goes on. Beside
        host memory they may: what decoding evicts decides what they would find there.
        """
        if self._ledger.host is not None and self.waiting:
            return 0
        return self._decoders.fitting(most)

    def repeat(self, steps: int) -> None:
        """That many more steps of the cohort, each completed."""
        self._decoders.advance(steps)
        self.cohort.sampled = self.cohort.clock

    def pass_by(self, steps: int) -> None:
        """That many steps of the cohort have been completed, and another one like them is under way."""
        self._decoders.advance(steps)
        self.cohort.sampled = self.cohort.clock - 1

    def planned(self, step: Step) -> list[tuple[Sequence, int]]:
        """Everyone who computes in this step and how many tokens, in order; for observers."""
        scheduled = set(step.scheduled)
        everyone = [s for s in self.running if s in scheduled or (step.steady and s.steady)]
        return [(sequence, sequence.planned if sequence in scheduled else 1) for sequence in everyone]

    def account(self) -> None:
        """Brings up to date what sequences are said to hold; for observers."""
        self._decoders.account()

    def loaded(self, sequence: Sequence) -> None:
        """The KV of a loading sequence has arrived; the next step can promote it."""
        sequence.loaded = True

    def end(self, sequence: Sequence) -> None:
        """Takes a sequence out in any state and frees its blocks."""
        self.detach(sequence)
        self._ledger.free(sequence)

    def detach(self, sequence: Sequence) -> None:
        """Takes a sequence out; its blocks stay with it until `free_blocks`."""
        status = sequence.status
        if status is Status.ENDED:
            return
        if status is Status.RUNNING:
            self.running.remove(sequence)
            self.version += 1
            if sequence.steady:
                self._decoders.part(sequence)
        elif status is Status.LOADING or sequence.held:
            self.holding.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._prefilling.pop(sequence, None)
        sequence.status = Status.ENDED

    def free_blocks(self, sequence: Sequence) -> None:
        """Frees what a detached sequence still holds; harmless when it holds nothing."""
        self._ledger.free(sequence)

    # running

    def _schedule_running(self, step: Step) -> int:
        """Gives every running sequence its share, in order; returns what is left of the token budget."""
        cohort, limits = self.cohort, self.limits
        others = [s for s in self.running if not s.steady] if cohort.count < len(self.running) else []
        if not others and cohort.count <= limits.max_batched_tokens and cohort.due <= self.pool.free:
            self._tick(step)
            return limits.max_batched_tokens - cohort.count
        if cohort.count and not self._budget_suffices(others):
            self._decoders.scatter()
            others = list(self.running)
        careful = cohort.due + self._blocks_wanted(others) > self.pool.free
        queue = [s for s in self.running if not s.steady or cohort.is_due(s)] if careful else others
        threshold = self._long_prefill_threshold()
        for sequence in queue:
            budget = limits.max_batched_tokens - cohort.count - step.tokens
            if sequence.status is not Status.RUNNING:
                continue  # preempted by one before it
            if sequence.steady:
                self._decoders.look_at(sequence)
                new = 1
            elif budget <= 0:
                break
            else:
                new = min(sequence.total - sequence.computed, budget, threshold or budget)
            needed = self._ledger.blocks_for(sequence.computed + new) - sequence.held
            while needed > self.pool.free and sequence.status is Status.RUNNING:
                self._preempt_one(step, sequence)
            if sequence.status is not Status.RUNNING:
                break
            self._ledger.allocate(sequence, needed)
            if not sequence.steady:
                self._plan(step, sequence, new)
        self._tick(step)
        return limits.max_batched_tokens - cohort.count - step.tokens

    def _tick(self, step: Step) -> None:
        """Every member computes its token; the blocks for it are there."""
        self._decoders.advance(1)
        step.steady = self.cohort.count
        step.decodes += step.steady
        step.context_tokens += self.cohort.context_tokens

    def _budget_suffices(self, others: list[Sequence]) -> bool:
        """Whether the cohort can have its tokens whatever the others take; else order decides, one by one."""
        budget = self.limits.max_batched_tokens - self.cohort.count
        if budget < 0:
            return False
        return sum(s.total - s.computed for s in others) <= budget or self.running[-len(others) :] == others

    def _blocks_wanted(self, others: list[Sequence]) -> int:
        return sum(max(0, self._ledger.blocks_for(s.total) - s.held) for s in others)

    def _plan(self, step: Step, sequence: Sequence, new: int) -> None:
        computed = sequence.computed
        sequence.planned = new
        sequence.computed = after = computed + new
        step.scheduled.append(sequence)
        step.tokens += new
        if new == 1:
            step.decodes += 1
            step.context_tokens += after
        else:
            step.chunks.append((new, computed))
        if after // self.limits.block_size != sequence.keyed:
            self._ledger.promote(sequence, after)
        if after < sequence.total:
            self._prefilling[sequence] = None
        elif self._prefilling:
            self._prefilling.pop(sequence, None)

    def _preempt_one(self, step: Step, for_whom: Sequence) -> None:
        """Preempts whoever the policy gives up first, which may be the one that needs the room."""
        turn = self.running.index(for_whom)
        if self.limits.policy is Policy.PRIORITY:
            victim = max(self.running, key=_least_important)
            place = self.running.index(victim)
        else:
            victim, place = self.running[-1], len(self.running) - 1
        del self.running[place]
        self.version += 1
        if victim in step.scheduled:
            self._unplan(step, victim)
        elif victim.steady:
            self._expel(victim, had_its_turn=place < turn)
        if victim is for_whom:
            self._skip(self.running[place:])
        victim.high_water = max(victim.high_water, victim.computed)
        self._prefilling.pop(victim, None)
        self._ledger.free(victim)
        victim.computed = 0
        victim.status = Status.PREEMPTED
        victim.preemptions += 1
        self.counters.preemptions += 1
        self.waiting.put_back((victim,))
        step.preempted.append(victim)

    def _unplan(self, step: Step, victim: Sequence) -> None:
        step.scheduled.remove(victim)
        new = victim.planned
        step.tokens -= new
        if new == 1:
            step.decodes -= 1
            step.context_tokens -= victim.computed
        else:
            step.chunks.remove((new, victim.computed - new))
        victim.computed -= new

    def _expel(self, victim: Sequence, *, had_its_turn: bool) -> None:
        self._decoders.part(victim)
        if had_its_turn and (victim.computed + 1) % self.limits.block_size == 0:
            # The block that it would have filled has its key already: vLLM gives keys when it plans.
            self._ledger.promote(victim, victim.computed + 1)

    def _skip(self, sequences: list[Sequence]) -> None:
        """Whoever comes after a sequence that had to give up does not compute in this step."""
        for sequence in sequences:
            if sequence.steady:
                self._decoders.part(sequence)
                self._decoders.joining.append(sequence)

    def _long_prefill_threshold(self) -> int:
        """Long prompts are cut only when there is somebody to starve."""
        threshold = self.limits.long_prefill_threshold
        return threshold if threshold and len(self.running) + self.waiting_count > 1 else 0


def _least_important(sequence: Sequence) -> tuple[int, int]:
    return sequence.priority, sequence.arrival
