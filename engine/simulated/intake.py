"""Who of the waiting is admitted to a step."""

from collections.abc import Callable

from engine.simulated.blocks import Block
from engine.simulated.ledger import Ledger
from engine.simulated.limits import Limits
from engine.simulated.sequence import Sequence, Status
from engine.simulated.step import Counters, Step
from engine.simulated.waiting import WaitingQueue


class Intake:
    """Takes the first in line while budget, slots and blocks last; nobody overtakes one that does not fit.

    Queues, counters and `prefilling` are the scheduler's; `plan` gives a sequence its tokens in the step.
    """

    def __init__(
        self,
        ledger: Ledger,
        running: list[Sequence],
        waiting: WaitingQueue,
        holding: WaitingQueue,
        prefilling: dict[Sequence, None],
        counters: Counters,
        plan: Callable[[Step, Sequence, int], None],
    ) -> None:
        self._ledger = ledger
        self._running = running
        self._waiting = waiting
        self._holding = holding
        self._prefilling = prefilling
        self._counters = counters
        self._plan = plan

    def admit(self, step: Step, budget: int, threshold: int, limits: Limits) -> None:
        """`budget` is what is left of the step's tokens; `threshold` bounds those of one prompt, 0 for no bound."""
        skipped: list[Sequence] = []
        while budget > 0 and len(self._running) < limits.max_num_seqs:
            queue = self._holding or self._waiting
            if not queue:
                break
            sequence = queue.first()
            if sequence.status is Status.LOADING:
                if not sequence.loaded:
                    skipped.append(queue.pop())
                    continue
                self._promote_loaded(sequence)
            admission = self._admission(sequence, min(budget, threshold or budget), limits)
            if admission is None:
                break
            hit, fetched, new, blocks = admission
            queue.pop()
            self._adopt(sequence, hit, blocks)
            if fetched:
                if not sequence.external:
                    self._from_host(sequence, fetched)
                self._ledger.allocate(sequence, self._ledger.blocks_for(sequence.computed + fetched) - sequence.held)
                sequence.computed += fetched
                sequence.external = 0
                sequence.status, sequence.loaded = Status.LOADING, False
                self._prefilling[sequence] = None
                step.loading.append(sequence)
                skipped.append(sequence)
                continue
            self._ledger.allocate(sequence, self._ledger.blocks_for(sequence.computed + new) - sequence.held)
            self._begin(step, sequence)
            self._plan(step, sequence, new)
            budget -= new
        self._holding.put_back(reversed(skipped))

    def _admission(self, sequence: Sequence, budget: int, limits: Limits) -> tuple[int, int, int, list[Block]] | None:
        """What admitting would mean: (cached blocks, tokens to fetch, tokens to compute, the cached blocks).

        None when the blocks do not suffice now; then nobody behind is tried either.
        """
        size, pool = self._ledger.block_size, self._ledger.pool
        blocks: list[Block] = []
        fetched = hit = 0
        if not sequence.computed:
            if not sequence.skip_cache:
                blocks = self._ledger.cached(sequence)
            hit = sum(block.count for block in blocks)
            if sequence.external:
                fetched = max(0, min(sequence.external, sequence.total) - hit * size)
            elif not sequence.skip_cache:
                fetched = self._ledger.on_host(sequence, hit)
        computed = sequence.computed or hit * size
        new = 0 if fetched else min(sequence.total - computed, budget)
        held = sequence.held or hit
        evictable = pool.evictable_among(blocks)
        watermark = limits.watermark_blocks if self._running else 0
        if limits.whole_prompt_must_fit:
            whole = max(0, self._ledger.blocks_for(sequence.total) - held) + evictable
            if whole + watermark > pool.free:
                return None
        reserved = self._reserved() if fetched else 0
        needed = max(0, self._ledger.blocks_for(computed + fetched + new) - held) + evictable
        if needed + watermark > pool.free - reserved:
            return None
        return hit, fetched, new, blocks

    def _adopt(self, sequence: Sequence, hit: int, blocks: list[Block]) -> None:
        if not blocks:
            return
        self._ledger.pool.touch(blocks)
        sequence.blocks = blocks
        sequence.keyed = hit
        sequence.computed = hit * self._ledger.block_size
        if not sequence.started:
            sequence.hit = sequence.computed
            self._counters.cached_prompt_tokens += sequence.computed

    def _from_host(self, sequence: Sequence, tokens: int) -> None:
        host, size = self._ledger.host, self._ledger.block_size
        assert host is not None
        host.taken(sequence, sequence.keyed, tokens // size)
        if not sequence.started:
            sequence.hit += tokens
            self._counters.cached_prompt_tokens += tokens

    def _begin(self, step: Step, sequence: Sequence) -> None:
        counters = self._counters
        if not sequence.started:
            sequence.started = True
            counters.prompt_tokens += sequence.prompt
        else:
            counters.recomputed_tokens += max(0, sequence.high_water - sequence.computed)
        sequence.external = 0
        sequence.status = Status.RUNNING
        self._running.append(sequence)
        step.admitted.append(sequence)

    def _promote_loaded(self, sequence: Sequence) -> None:
        """The fetched tokens are ours now; if that is all there is, the last is computed again for its logits."""
        self._ledger.promote(sequence, sequence.computed)
        self._prefilling.pop(sequence, None)
        sequence.computed = min(sequence.computed, sequence.total - 1)
        sequence.status = Status.PREEMPTED if sequence.preemptions else Status.WAITING

    def _reserved(self) -> int:
        """Blocks that prompts in progress still need; a load must leave them free, as it cannot be preempted."""
        return sum(max(0, self._ledger.blocks_for(s.total) - s.held) for s in self._prefilling)
