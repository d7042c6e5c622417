"""Hand-shakes of pairs before traffic needs them; the first transfer of a pair is slow otherwise."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from gateway.cluster.client import WorkerLostError
from gateway.cluster.pairs import Pair, PairBook
from gateway.cluster.states import PairState
from gateway.cluster.worker import Worker
from proto.fault import FaultError
from proto.worker import Role, WarmResult

log = logging.getLogger(__name__)

#: Hand-shakes of one gateway at the same time.
_AT_ONCE = 4


def belongs(prefill: Worker, decode: Worker, fluid: bool) -> bool:
    """Whether the routing could ever use the pair: unless roles are fluid, colocated workers have no need of one another."""
    if prefill is decode or not prefill.role.prefills or not decode.role.decodes:
        return False
    return fluid or not (prefill.role is Role.BOTH and decode.role is Role.BOTH)


class Warmer:
    """`answers_move`: whether running answers of a worker may go on at another decode worker, which then is its pair as well."""

    def __init__(
        self,
        pairs: PairBook,
        timeout_s: float,
        worker: Callable[[str], Worker | None],
        fluid: bool = False,
        answers_move: Callable[[Worker], bool] = lambda _: False,
    ) -> None:
        self._pairs = pairs
        self._fluid = fluid
        self._answers_move = answers_move
        self._timeout_s = timeout_s
        self._worker = worker
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def warm_all(self, worker: Worker, others: Iterable[Worker]) -> None:
        """Tries every pair of a newcomer; returns when each has an outcome, good or bad."""
        mine = [pair.key for other in others for pair in self._meet(worker, other)]
        self._start()
        tasks = [task for key in mine if (task := self._tasks.get(key))]
        if tasks:
            await asyncio.wait(tasks)

    def match(self, workers: Iterable[Worker]) -> None:
        """Starts whatever is due: new pairs after a change of role, quarantined ones after their delay."""
        known = list(workers)
        for prefill in known:
            for decode in known:
                if self._belongs(prefill, decode):
                    self._pairs.meet(prefill.info, decode.info)
        self._start()

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _meet(self, one: Worker, other: Worker) -> list[Pair]:
        return [
            self._pairs.meet(prefill.info, decode.info)
            for prefill, decode in ((one, other), (other, one))
            if self._belongs(prefill, decode)
        ]

    def _belongs(self, writer: Worker, reader: Worker) -> bool:
        if belongs(writer, reader, self._fluid):
            return True
        return writer is not reader and writer.role.decodes and reader.role.decodes and self._answers_move(writer)

    def _start(self) -> None:
        for pair in self._pairs.to_warm():
            if pair.key in self._tasks or not self._connected(pair):
                continue
            self._pairs.warming(pair)
            task = asyncio.create_task(self._warm(pair), name=f"warm-{pair.key}")
            self._tasks[pair.key] = task
            task.add_done_callback(partial(self._forget, pair.key))

    def _forget(self, key: tuple[str, str], _: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)

    def _connected(self, pair: Pair) -> bool:
        ends = (self._worker(pair.prefill.worker_id), self._worker(pair.decode.worker_id))
        return all(end is not None and end.connection is not None for end in ends)

    async def _warm(self, pair: Pair) -> None:
        async with self._gate:
            result = await self._shake(pair)
        if pair.state is PairState.WARMING:
            self._pairs.warmed(pair, result)

    async def _shake(self, pair: Pair) -> WarmResult:
        reader = self._worker(pair.decode.worker_id)
        if reader is None or reader.connection is None:
            return WarmResult(False, "", 0.0, 0.0, "the decode worker is not connected")
        try:
            return await reader.connection.client.warm(pair.prefill, self._timeout_s)
        except (WorkerLostError, FaultError, TimeoutError) as error:
            return WarmResult(False, "", 0.0, 0.0, str(error) or type(error).__name__)
        except Exception as error:
            # Or the pair would count as shaking hands for ever, and never be tried again.
            log.exception("hand-shake of %s", pair.key)
            return WarmResult(False, "", 0.0, 0.0, f"{type(error).__name__}: {error}")
