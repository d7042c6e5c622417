"""No KV block leaks and none is freed twice, under any interleaving of what can happen to requests."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from engine.simulated.limits import Limits
from engine.simulated.pins import Pin, Pins, Refused
from engine.simulated.scheduler import Scheduler
from engine.simulated.sequence import Sequence, Status, TokenKeys
from engine.simulated.waiting import Policy
from tests.examples import examples

_EPOCH = "e"


class Accounting(RuleBasedStateMachine):
    """A scheduler and its pins, driven by hand."""

    names = Bundle("names")

    @initialize(
        blocks=st.integers(6, 30),
        size=st.sampled_from((1, 4, 16)),
        policy=st.sampled_from(Policy),
        caching=st.booleans(),
        watermark=st.sampled_from((0, 2)),
    )
    def build(self, blocks: int, size: int, policy: Policy, caching: bool, watermark: int) -> None:
        self.limits = Limits(size, blocks, 4, 24, 10_000, 8, watermark, policy, caching)
        self.scheduler = Scheduler(self.limits)
        self.pins = Pins(_EPOCH, 10.0, self.scheduler.free_blocks)
        self.live: dict[str, Sequence] = {}
        self.tokens: dict[str, list[int]] = {}
        self.limit: dict[str, int] = {}
        self.writing: dict[str, Sequence] = {}  # aborted while their KV arrives
        self.pinned: dict[str, Sequence] = {}
        self.now = 0.0
        self.count = 0

    @rule(
        target=names,
        prompt=st.integers(1, 60),
        answer=st.integers(1, 40),
        shared=st.booleans(),
        external=st.booleans(),
        priority=st.integers(0, 2),
    )
    def submit(self, prompt: int, answer: int, shared: bool, external: bool, priority: int) -> str:
        self.count += 1
        name = f"r{self.count}"
        prompt = min(prompt, (self.limits.blocks * self.limits.block_size) // 2)
        self.tokens[name] = [index if shared else self.count * 1000 + index for index in range(max(1, prompt))]
        sequence = Sequence(
            name,
            len(self.tokens[name]),
            TokenKeys(self.tokens[name], self.limits.block_size),
            priority=priority,
            external=len(self.tokens[name]) if external else 0,
        )
        self.limit[name] = len(self.tokens[name]) + answer
        self.live[name] = sequence
        self.scheduler.add(sequence)
        return name

    @rule(data=st.data(), steps=st.integers(1, 12))
    def step(self, data: st.DataObject, steps: int) -> None:
        for _ in range(steps):
            plan = self.scheduler.schedule()
            assert sum(tokens for _, tokens in self.scheduler.planned(plan)) <= self.limits.max_batched_tokens
            assert len(self.scheduler.running) <= self.limits.max_num_seqs
            for sequence in self.scheduler.complete_each(plan):
                self.tokens[sequence.request_id].append(7)
                if sequence.total >= self.limit[sequence.request_id]:
                    self._end(sequence, hold=data.draw(st.booleans()))

    def _end(self, sequence: Sequence, hold: bool) -> None:
        del self.live[sequence.request_id]
        if not hold:
            self.scheduler.end(sequence)
            return
        self.scheduler.detach(sequence)
        self.pinned[sequence.request_id] = sequence
        self.pins.pin(Pin(sequence.request_id, sequence, sequence.computed, sequence.held, 0, self.now + 10.0))

    @rule(name=names)
    def arrive(self, name: str) -> None:
        sequence = self.live.get(name)
        if sequence is not None and sequence.status is Status.LOADING:
            self.scheduler.loaded(sequence)
        elif (sequence := self.writing.pop(name, None)) is not None:
            self.scheduler.free_blocks(sequence)

    @rule(name=names)
    def abort(self, name: str) -> None:
        sequence = self.live.pop(name, None)
        if sequence is None:
            return
        if sequence.status is Status.LOADING and not sequence.loaded:
            self.scheduler.detach(sequence)
            self.writing[name] = sequence
        else:
            self.scheduler.end(sequence)

    @rule(name=names)
    def end_twice(self, name: str) -> None:
        """Ending what has ended, however it ended, changes nothing."""
        sequence = self.live.get(name)
        if sequence is None and name not in self.writing and name not in self.pinned:
            before = self.scheduler.pool.free
            self.pins.release(name)
            assert self.scheduler.pool.free == before

    @rule(name=names, times=st.integers(1, 2))
    def release(self, name: str, times: int) -> None:
        for _ in range(times):
            assert self.pins.release(name) == (self.pinned.pop(name, None) is not None)

    @rule(name=names, stale=st.booleans())
    def read(self, name: str, stale: bool) -> None:
        found = self.pins.find(name, "other" if stale else _EPOCH, self.now)
        assert isinstance(found, Pin) == (name in self.pinned and not stale)
        if stale:
            assert found is Refused.STALE
        elif isinstance(found, Pin):
            self.pins.renew(found, self.now)

    @rule(seconds=st.sampled_from((1.0, 6.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.pins.expire(self.now)
        self.pinned = {name: s for name, s in self.pinned.items() if name in self.pins._held}

    @invariant()
    def every_block_has_an_owner(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        pool = self.scheduler.pool
        self.scheduler.account()
        owners = [*self.live.values(), *self.writing.values(), *self.pinned.values()]
        references = Counter(id(block) for s in owners for block in s.blocks)
        known = {id(block): block for s in owners for block in s.blocks}
        plain = sum(s.plain for s in owners)
        assert all(s.plain >= 0 for s in owners)
        assert all(known[key].refs == count for key, count in references.items())
        assert pool.used == sum(known[key].count for key in references) + plain
        assert 0 <= pool.free <= pool.total
        assert all(not block.refs for block in pool._evictable)
        assert pool.free == pool._plain_free + sum(block.count for block in pool._evictable)
        assert all(s.keyed == sum(block.count for block in s.blocks) for s in owners)

    @invariant()
    def running_sequences_have_room_for_what_is_computed(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.account()
            for sequence in self.scheduler.running:
                assert sequence.held * self.limits.block_size >= sequence.computed
                assert sequence.status is Status.RUNNING

    def teardown(self) -> None:
        """Whatever happened, when everyone is gone everything is free."""
        if not hasattr(self, "scheduler"):
            return
        for name in list(self.live):
            self.abort(name)
        for sequence in self.writing.values():
            self.scheduler.free_blocks(sequence)
        self.pins.clear()
        assert self.scheduler.pool.used == 0
        assert self.scheduler.waiting_count == 0
        assert not self.scheduler.running
        assert not self.scheduler._prefilling
        assert not self.scheduler.cohort.count


TestBlockAccounting = Accounting.TestCase
TestBlockAccounting.settings = examples(120, stateful_step_count=40)
