"""Frames on their way to one gateway: one a step while it keeps up, merged when it does not."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace

from proto.work import Frame, SequenceDelta, TokenLogprobs

#: Steps that may wait before they are merged.
DEFAULT_DEPTH = 32


class _Pile:
    """Several deltas of one sequence that will travel as one."""

    __slots__ = ("first", "last", "logprobs", "stays", "tokens")

    def __init__(self, first: SequenceDelta) -> None:
        self.first = first
        self.last = first
        self.tokens: list[int] = list(first.tokens)
        self.logprobs: list[TokenLogprobs] = list(first.logprobs)
        self.stays = first.stays

    def add(self, delta: SequenceDelta) -> None:
        self.tokens.extend(delta.tokens)
        self.logprobs.extend(delta.logprobs)
        self.stays = self.stays or delta.stays
        self.last = delta

    def delta(self) -> SequenceDelta:
        """What was said first (times, cached tokens, prompt logprobs) with how it stands last."""
        return replace(
            self.first,
            tokens=tuple(self.tokens),
            logprobs=tuple(self.logprobs),
            finish=self.last.finish,
            fault=self.last.fault,
            ticket=self.last.ticket,
            stays=self.stays,
        )


class Outbox:
    """Never blocks its writer. Beyond `depth` steps, memory grows by tokens, not by messages."""

    def __init__(self, depth: int = DEFAULT_DEPTH) -> None:
        self._depth = depth
        self._frames: deque[Frame] = deque()
        self._piles: dict[int, _Pile] = {}
        self._news = asyncio.Event()
        self._closed = False
        self.merged_steps = 0

    def __len__(self) -> int:
        return len(self._frames) + bool(self._piles)

    def put(self, frame: Frame) -> None:
        if self._closed or not frame:
            return
        if self._piles or len(self._frames) >= self._depth:
            self._merge(frame)
        else:
            self._frames.append(frame)
        self._news.set()

    def close(self) -> None:
        """Ends `frames` after what is already in it."""
        self._closed = True
        self._news.set()

    async def frames(self) -> AsyncIterator[Frame]:
        """One consumer."""
        while True:
            while self._frames or self._piles:
                yield self._take()
            if self._closed:
                return
            self._news.clear()
            await self._news.wait()

    def _merge(self, frame: Frame) -> None:
        self.merged_steps += 1
        piles = self._piles
        for sequence, delta in frame:
            pile = piles.get(sequence)
            if pile is None:
                piles[sequence] = _Pile(delta)
            else:
                pile.add(delta)

    def _take(self) -> Frame:
        if self._frames:
            return self._frames.popleft()
        piles, self._piles = self._piles, {}
        return tuple([(sequence, pile.delta()) for sequence, pile in piles.items()])
