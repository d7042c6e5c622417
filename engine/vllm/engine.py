"""VllmEngine: the Engine protocol over a vLLM engine process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from engine.base import EngineDeadError, EngineFrame, EngineOutput, EngineStats, WorkerIdentity
from engine.config import EngineConfig
from engine.vllm.describe import describe
from engine.vllm.launch import Core, launch
from engine.vllm.meter import Meter
from engine.vllm.outputs import Live, to_delta
from engine.vllm.request import refuse_impossible, request_of
from engine.vllm.step_limit import StepLimit
from engine.vllm.tickets import Handoff, engine_id, issue, redeem, worker_of
from engine.vllm.warm import warm_pair
from proto.fault import Fault, FaultError, FaultKind
from proto.ticket import Ticket
from proto.work import FinishReason, SequenceDelta, Work
from proto.worker import WarmResult, WorkerInfo
from transfer.nixl.handover import METHOD as HAND_OVER
from transfer.nixl.step_limit import METHOD as LIMIT_STEP

log = logging.getLogger(__name__)

_UNPIN_S = 1.0


class VllmEngine:
    """One vLLM engine. Its process starts with `start` and ends with `stop`, or with this process."""

    def __init__(self, config: EngineConfig, identity: WorkerIdentity) -> None:
        self._config = config
        self._identity = identity
        self._id = engine_id(identity.worker_id, identity.epoch)
        # The engine's processes die with the thread that started them, so it lives as long as they may.
        self._owner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="vllm-owner")
        self._core: Core | None = None
        self._info: WorkerInfo | None = None
        self._groups = 1
        self._meter = Meter()
        self._live: dict[str, Live] = {}
        self._by_core_id: dict[str, Live] = {}
        self._submitted = 0
        self._step_limit = StepLimit(self._limit_step)
        self._frames: asyncio.Queue[list[tuple[Live, EngineOutput]] | None] = asyncio.Queue()
        self._outbox: asyncio.Queue[Callable[[], Coroutine[Any, Any, None]]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[Any]] = set()
        self._dead = ""
        self._stopped = False

    async def start(self) -> WorkerInfo:
        loop = asyncio.get_running_loop()
        self._core = core = await loop.run_in_executor(self._owner, launch, self._config, self._identity)
        self._tasks = [
            asyncio.create_task(self._receive(core), name="vllm-receive"),
            asyncio.create_task(self._send(), name="vllm-send"),
        ]
        ranks = await self._rpc("tandem_describe")
        core.unlink_shared_memory(ranks)
        self._groups = int(ranks[0]["groups"])
        self._info = describe(self._config, self._identity, core, ranks)
        self._meter.blocks_total = self._info.blocks_total
        self._meter.block_size_tokens = self._info.block_size_tokens
        await self._step_limit.tell()
        return self._info

    async def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        await self._unpin_all()
        self._die("the engine was stopped")
        for task in (*self._tasks, *self._background):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._background, return_exceptions=True)
        if self._core is not None:
            await asyncio.get_running_loop().run_in_executor(self._owner, self._core.shutdown)
        self._owner.shutdown(wait=False)

    async def _unpin_all(self) -> None:
        """vLLM's process will not end while KV is pinned for a reader."""
        if self._dead or self._info is None:
            return
        with suppress(Exception):
            async with asyncio.timeout(_UNPIN_S):
                await asyncio.gather(*(self._rpc("tandem_release", ticket) for ticket in self._meter.held))

    def submit(self, work: Work, *, hold: bool = False, pull: Ticket | None = None) -> None:
        core, info = self._running()
        if work.request_id in self._live:
            raise FaultError(Fault(FaultKind.INTERNAL, f"request {work.request_id} is already running"))
        handoff = None if pull is None else self._redeem(work, pull, info)
        refuse_impossible(work, info)
        self._submitted += 1
        live = Live(
            work=work,
            # vLLM keeps a finished request's id while its KV is pinned, and dies of a second one
            core_id=f"{work.request_id}.{self._submitted}",
            hold=hold,
            writer="" if handoff is None else worker_of(handoff.engine_id),
        )
        request = request_of(core, live, handoff)
        self._live[work.request_id] = live
        self._by_core_id[live.core_id] = live
        self._outbox.put_nowait(lambda: self._add(core, live, request))

    async def _add(self, core: Core, live: Live, request: Any) -> None:
        if live.core_id not in self._by_core_id and not live.writer:  # aborted before it was sent
            return  # a pull goes in all the same: the abort that follows makes the engine tell its writer to free
        try:
            await core.client.add_request_async(request)
        except (ValueError, TypeError, OverflowError) as error:  # it does not fit the engine's wire format
            self._by_core_id.pop(live.core_id, None)
            fault = Fault(FaultKind.INVALID_REQUEST, str(error))
            self._frames.put_nowait([(live, EngineOutput(live.work.request_id, SequenceDelta(tokens=(), fault=fault)))])

    def _redeem(self, work: Work, ticket: Ticket, info: WorkerInfo) -> Handoff:
        if work.sampling.prompt_logprobs is not None:
            raise FaultError(Fault(FaultKind.INVALID_REQUEST, "prompt logprobs come from the prefill leg (B-07)"))
        block_size = info.block_size_tokens
        return redeem(ticket, len(work.tokens), own_id=self._id, block_size=block_size, groups=self._groups)

    async def abort(self, request_id: str) -> None:
        core, _ = self._running()
        live = self._live.pop(request_id, None)
        if live is None:
            return
        live.aborted = True
        if self._by_core_id.pop(live.core_id, None) is not None:
            self._meter.forget(live.core_id)
            self._outbox.put_nowait(lambda: core.client.abort_requests_async([live.core_id]))
        elif live.ticket_id:  # it has ended, but its owner has not seen the ticket and never will
            self._unpin(live.ticket_id)

    def hand_over(self, request_id: str) -> None:
        self._running()
        live = self._live.get(request_id)
        if live is not None and live.core_id in self._by_core_id and not live.moving:
            live.moving = True
            self._spawn(self._hand_over(live))

    async def _hand_over(self, live: Live) -> None:
        """Where the engine's process cannot, the answer goes on here, says so, and ends without a ticket."""
        assert self._core is not None
        try:
            live.moving = bool(await self._core.client.call_utility_async(HAND_OVER, live.core_id))
        except Exception as error:
            live.moving = False
            if not self._dead:
                log.warning("%s was not handed over: %s", live.work.request_id, error)
        if not live.moving and live.core_id in self._by_core_id:  # of one that has ended the end says enough
            self._frames.put_nowait([(live, EngineOutput(live.work.request_id, SequenceDelta((), stays=True)))])

    def limit_step(self, tokens: int, chunk_tokens: int) -> None:
        self._running()
        if self._step_limit.set(tokens, chunk_tokens):
            self._spawn(self._step_limit.tell())

    async def _limit_step(self, tokens: int, chunk_tokens: int) -> int:
        assert self._core is not None
        return int(await self._core.client.call_utility_async(LIMIT_STEP, tokens, chunk_tokens))

    async def release(self, ticket_id: str) -> bool:
        self._running()
        if ticket_id not in self._meter.held:
            return False
        return any(await self._rpc("tandem_release", ticket_id))

    async def frames(self) -> AsyncIterator[EngineFrame]:
        while (news := await self._frames.get()) is not None:
            frame = tuple(output for live, output in news if not live.aborted)
            for live, output in news:
                if output.delta.ended and self._live.get(live.work.request_id) is live:
                    del self._live[live.work.request_id]
            if frame:
                yield frame
        self._frames.put_nowait(None)
        raise EngineDeadError(self._dead)

    def stats(self) -> EngineStats:
        self._running()
        return replace(self._meter.snapshot(unfinished=len(self._by_core_id)), most_step_tokens=self._step_limit.most)

    async def warm(self, peer: WorkerInfo) -> WarmResult:
        _, info = self._running()
        return await warm_pair(info, peer, self._config.link, lambda params: self._rpc("tandem_warm", params))

    def _running(self) -> tuple[Core, WorkerInfo]:
        if self._dead:
            raise EngineDeadError(self._dead)
        if self._core is None or self._info is None:
            raise RuntimeError("the engine has not been started")
        return self._core, self._info

    async def _rpc(self, method: str, *args: Any) -> list[Any]:
        """Calls a method on every rank, between two steps."""
        assert self._core is not None
        try:
            results: list[Any] = await self._core.client.collective_rpc_async(method, args=args)
        except Exception:
            if self._dead:
                raise EngineDeadError(self._dead) from None
            raise
        return results

    async def _send(self) -> None:
        """Requests and aborts reach the engine in the order in which they were made."""
        while True:
            send = await self._outbox.get()
            try:
                await send()
            except Exception as error:
                self._die(f"the engine's process cannot be reached: {error}")

    async def _receive(self, core: Core) -> None:
        try:
            while True:
                outputs = await core.client.get_output_async()
                if outputs.scheduler_stats is not None:
                    self._meter.scheduler(outputs.scheduler_stats, outputs.timestamp)
                news = [news for output in outputs.outputs if (news := self._absorb(output, outputs.timestamp))]
                if news:
                    self._frames.put_nowait(news)
        except Exception as error:
            self._die(str(error) or type(error).__name__)

    def _absorb(self, output: Any, now_s: float) -> tuple[Live, EngineOutput] | None:
        live = self._by_core_id.get(output.request_id)
        if live is None:
            self._unpin_ended(output)  # aborted as it ended: nobody will ever have its ticket
            return None
        self._meter.output(output, live.observe(output, now_s))
        if not live.emitted:
            live.transfer_s = self._meter.pulled_s(live.core_id)
        delta = to_delta(live, output)
        ticket = None
        if delta.ended:
            del self._by_core_id[live.core_id]
            self._meter.forget(live.core_id)
            over = live.hold and delta.finish is FinishReason.STOP and live.work.sampling.max_tokens > 1
            if over:
                self._unpin_ended(output)  # the connector keeps the KV of what stops by itself, too
            elif live.moving and not live.hold:
                delta, ticket = self._moved(live, output, delta)
            elif live.hold and delta.finish is not None and delta.finish is not FinishReason.ABORT:
                ticket = self._ticket(output)
                live.ticket_id = "" if ticket is None else ticket.ticket_id
                if ticket is None:
                    delta = _handoff_missing(delta)
        return live, EngineOutput(live.work.request_id, delta, ticket, live.compute_s)

    def _moved(self, live: Live, output: Any, delta: SequenceDelta) -> tuple[SequenceDelta, Ticket | None]:
        """The end of a request that was asked to be handed over: with KV kept after a length that was not its own limit."""
        ticket = self._ticket(output) if delta.finish is FinishReason.LENGTH else None
        if ticket is None:
            self._unpin_ended(output)  # it stopped by itself, and the connector keeps the KV of that, too
            return delta, None
        live.ticket_id = ticket.ticket_id
        return replace(delta, finish=FinishReason.HANDED_OVER), ticket

    def _ticket(self, output: Any) -> Ticket | None:
        params = output.kv_transfer_params
        if not params or not params.get("remote_block_ids") or self._info is None:
            return None
        ticket = issue(Handoff.from_engine(params), self._info, self._config.kv_lease_s)
        self._meter.held.add(ticket.ticket_id)
        return ticket

    def _unpin_ended(self, output: Any) -> None:
        """Frees what a request that has ended keeps for a reader, if it does."""
        if output.kv_transfer_params and output.kv_transfer_params.get("remote_block_ids"):
            self._unpin(output.request_id)

    def _unpin(self, core_id: str) -> None:
        self._spawn(self._rpc("tandem_release", core_id))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _die(self, reason: str) -> None:
        if self._dead:
            return
        self._dead = reason
        self._live.clear()
        self._by_core_id.clear()
        self._frames.put_nowait(None)
        if self._core is not None:
            for future in self._core.client.utility_results.values():
                with suppress(asyncio.InvalidStateError):
                    future.set_exception(EngineDeadError(reason))


def _handoff_missing(delta: SequenceDelta) -> SequenceDelta:
    fault = Fault(FaultKind.HANDOFF_MISSING, "the prefill ended without hand-off parameters")
    return SequenceDelta(tokens=delta.tokens, fault=fault, cached_tokens=delta.cached_tokens, queue_s=delta.queue_s)
