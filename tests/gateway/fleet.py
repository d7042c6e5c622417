"""A gateway's core over real gRPC workers with simulated engines, all in one process."""

import asyncio
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from engine.base import WorkerIdentity
from engine.config import Backend, EngineConfig
from engine.simulated import SimulatedEngine
from engine.simulated.faults import Script
from engine.simulated.setup import MEAN_ANSWER
from engine.simulated.tokens import TokenStream
from engine.simulated.vocabulary import byte_level
from gateway.cluster.cluster import Cluster
from gateway.cluster.snapshot import WorkerSnapshot
from gateway.cluster.states import PairState, WorkerStatus
from gateway.config import GatewayConfig
from gateway.request.answer import Piece
from gateway.request.errors import RequestError
from gateway.request.intent import Intent
from gateway.request.lifecycle import Lifecycle
from gateway.request.observer import Handoff, SilentObserver
from gateway.request.phase import Phase
from gateway.request.record import Record
from proto.join import JoinRequest
from proto.sampling import Sampling
from proto.work import FinishReason
from proto.worker import Role
from tandem.worker.config import WorkerConfig
from tandem.worker.join import keep_joining
from tandem.worker.worker import Worker, serving
from tests.waiting import HANG_S
from tests.waiting import until as until

VOCABULARY = byte_level()
BLOCK = 16

#: Fast reactions, so that tests do not wait; but no worker is silent because the machine is busy.
FAST: dict[str, Any] = {
    "health": {"watch_interval_s": 0.05, "stale_after_s": HANG_S, "probe_backoff_s": 0.2, "probe_timeout_s": 30.0},
    "deadlines": {"reserve_s": 30.0, "release_s": 10.0},
    "routing": {"local_prefill_below_tokens": 0},
}


def config(**sections: Any) -> GatewayConfig:
    """A configuration for tests: sections are merged into FAST."""
    merged = {name: dict(values) for name, values in FAST.items()}
    for name, values in sections.items():
        merged[name] = {**merged.get(name, {}), **values} if isinstance(values, dict) else values
    return GatewayConfig.model_validate(merged)


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Distinct prompts of printable bytes."""
    return tuple(97 + (seed * 7919 + index * (seed + 3) + index * index) % 26 for index in range(length))


def sampling(max_tokens: int = 8, **more: Any) -> Sampling:
    return Sampling(max_tokens=max_tokens, **{"temperature": 0.0, **more})


def intent(
    *prompts: tuple[int, ...], n: int = 1, declared: bool = True, max_tokens: int = 8, salt: str = "", **more: Any
) -> Intent:
    wanted = sampling(max_tokens, **more)
    return Intent(uuid.uuid4().hex, "toy", prompts or (prompt(40),), n, wanted, declared, cache_salt=salt)


def expected(tokens: tuple[int, ...], wanted: Sampling) -> tuple[int, ...]:
    """What an uninterrupted engine would answer."""
    stream = TokenStream(VOCABULARY, wanted, tokens, MEAN_ANSWER)
    stops = set(wanted.stop_token_ids) | (set() if wanted.ignore_eos else set(VOCABULARY.eos))
    answer: list[int] = []
    while len(answer) < wanted.max_tokens:
        answer.append(stream.next())
        if answer[-1] in stops and len(answer) >= wanted.min_tokens:
            break
    return tuple(answer)


@dataclass
class Watcher(SilentObserver):
    """Remembers what the core tells its observer."""

    phases: list[tuple[str, Phase]] = field(default_factory=list)
    handoffs: list[Handoff] = field(default_factory=list)
    refusals: list[RequestError] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    retries: list[str] = field(default_factory=list)
    missing: int = 0
    expired: int = 0
    workers: list[tuple[str, WorkerStatus, WorkerStatus, str]] = field(default_factory=list)
    pairs: list[tuple[PairState, str]] = field(default_factory=list)

    def worker_moved(self, worker_id: str, before: WorkerStatus, after: WorkerStatus, reason: str) -> None:
        self.workers.append((worker_id, before, after, reason))

    def pair_moved(
        self, prefill_worker: str, decode_worker: str, before: PairState, after: PairState, reason: str
    ) -> None:
        self.pairs.append((after, reason))

    def phase_changed(self, record: Record, before: Phase, after: Phase, now_s: float) -> None:
        self.phases.append((record.request_id, after))

    def refused(self, record: Record, error: RequestError) -> None:
        self.refusals.append(error)

    def handed_off(self, record: Record, handoff: Handoff) -> None:
        self.handoffs.append(handoff)

    def handoff_missing(self, record: Record, worker_id: str) -> None:
        self.missing += 1

    def ticket_expired(self, record: Record, worker_id: str, age_s: float) -> None:
        self.expired += 1

    def retried(self, record: Record, phase: Phase, reason: Any, message: str) -> None:
        self.retries.append(f"{phase}: {reason}: {message}")

    def ended(self, record: Record) -> None:
        self.records.append(record)

    def path_of(self, request_id: str) -> list[Phase]:
        return [phase for owner, phase in self.phases if owner == request_id]


@dataclass
class Answer:
    """Everything one request gave."""

    record: Record
    pieces: list[Piece]

    def tokens(self, choice: int = 0) -> tuple[int, ...]:
        return tuple(token for piece in self.pieces if piece.choice == choice for token in piece.tokens)

    def finish(self, choice: int = 0) -> FinishReason | None:
        return next((piece.finish for piece in self.pieces if piece.choice == choice and piece.finish), None)

    def first(self, choice: int = 0) -> Piece:
        return next(piece for piece in self.pieces if piece.choice == choice and piece.first)


@dataclass
class Member:
    """One worker of the fleet."""

    name: str
    worker: Worker
    engine: SimulatedEngine
    address: str
    stack: AsyncExitStack

    async def stop(self) -> None:
        await self.stack.aclose()

    @property
    def held(self) -> dict[str, int]:
        """Everything the worker still holds for anybody."""
        stats = self.engine.stats()
        return {
            "blocks_used": stats.blocks_used,
            "running": stats.running + stats.waiting,
            "tickets": stats.tickets_held,
            "reserved": self.worker.decode.ledger.reserved_blocks,
            "reservations": self.worker.decode.ledger.reservations,
            "sequences": self.worker.decode.sequences,
            "prefills": self.worker.prefill.in_flight,
        }

    @property
    def idle(self) -> bool:
        return not any(self.held.values())


class Fleet:
    def __init__(self, settings: GatewayConfig, watcher: Watcher, cluster: Cluster, lifecycle: Lifecycle) -> None:
        self.config, self.watcher, self.cluster, self.lifecycle = settings, watcher, cluster, lifecycle
        self.members: dict[str, Member] = {}
        self.processes: list[asyncio.subprocess.Process] = []
        self.accounts: dict[str, Record] = {}

    async def stop_workers(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await asyncio.gather(*[member.stop() for member in self.members.values()])

    async def add(
        self,
        name: str,
        role: Role,
        script: dict[str, Any] | None = None,
        port: int = 0,
        place: dict[str, str] | None = None,
        **engine: Any,
    ) -> Member:
        """Starts a worker in a new epoch and has it join. `place`: what it says of where it stands."""
        settings = {"profile": "instant", "block_size_tokens": BLOCK, "kv_blocks": 4096, **engine}
        tls = self.config.tls
        worker_config = WorkerConfig(
            worker_id=name,
            role=role,
            port=port,
            engine=EngineConfig(backend=Backend.SIMULATED, **settings),
            tls=tls,
            **(place or {}),
        )
        identity = WorkerIdentity(name, uuid.uuid4().hex[:8], role)
        built = SimulatedEngine(worker_config.engine, identity)
        if script is not None:
            built.injector.use(Script.model_validate(script))
        stack = AsyncExitStack()
        info = await built.start()
        stack.push_async_callback(built.stop)
        worker, address = await stack.enter_async_context(serving(worker_config, built, identity, info))
        join = asyncio.create_task(
            keep_joining(self.cluster.join_address, JoinRequest(name, identity.epoch, address), tls)
        )
        stack.callback(join.cancel)
        member = self.members[name] = Member(name, worker, built, address, stack)
        return member

    async def spawn(
        self, name: str, role: Role, *, port: int = 0, profile: str = "toy", speedup: float = 1.0
    ) -> asyncio.subprocess.Process:
        """A worker in a process of its own, for tests that kill it."""
        options = {"role": role.value, "id": name, "join": self.cluster.join_address, "engine": "simulated"}
        options |= {"profile": profile, "block-size": str(BLOCK), "port": str(port), "speedup": str(speedup)}
        arguments = [part for key, value in options.items() for part in (f"--{key}", value)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tandem", "worker", *arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.processes.append(process)
        return process

    def seen(self, name: str) -> WorkerSnapshot | None:
        return next((one for one in self.cluster.snapshot().workers if one.worker_id == name), None)

    async def status(self, name: str, *wanted: WorkerStatus) -> WorkerSnapshot:
        def there() -> bool:
            seen = self.seen(name)
            return seen is not None and seen.status in wanted

        await until(there, otherwise=lambda: f"{name}: {self.seen(name)}")
        seen = self.seen(name)
        assert seen is not None
        return seen

    async def ready(self) -> None:
        await until(
            lambda: (
                all(
                    (seen := self.seen(name)) is not None
                    and seen.status is WorkerStatus.READY
                    and seen.epoch == member.worker.duty.epoch
                    for name, member in self.members.items()
                )
                and all(pair.state not in (PairState.NEW, PairState.WARMING) for pair in self.cluster.snapshot().pairs)
            ),
            otherwise=lambda: str(self.cluster.snapshot()),
        )

    def record(self, wanted: Intent) -> Record:
        """The account of a request that is about to be opened; also in `accounts`."""
        record = self.accounts[wanted.request_id] = Record(
            request_id=wanted.request_id,
            model=wanted.model,
            tenant=wanted.tenant,
            prompt_tokens=sum(map(len, wanted.prompts)),
            choices=wanted.choices,
            started_s=self.lifecycle.clock(),
        )
        return record

    async def begun(self, *wanted: Intent) -> None:
        """Each of these has shown a token of its decode worker: the first may be the prefill worker's."""

        def all_begun() -> bool:
            accounts = [self.accounts.get(each.request_id) for each in wanted]
            return all(account is not None and account.completion_tokens > 1 for account in accounts)

        await until(all_begun)

    async def ask(self, wanted: Intent) -> Answer:
        """Reads a whole answer; raises RequestError as a client would see it."""
        record = self.record(wanted)
        pieces: list[Piece] = []
        async with asyncio.timeout(HANG_S), self.lifecycle.open(wanted, record) as stream:
            async for batch in stream:
                pieces.extend(batch)
        return Answer(record, pieces)

    async def outcome(self, wanted: Intent) -> tuple[Answer, RequestError | None]:
        """What a client had got when its answer ended, well or badly."""
        answer = Answer(self.record(wanted), [])
        try:
            async with asyncio.timeout(HANG_S), self.lifecycle.open(wanted, answer.record) as stream:
                async for batch in stream:
                    answer.pieces.extend(batch)
        except RequestError as error:
            return answer, error
        return answer, None

    async def leave_in(self, wanted: Intent, phase: Phase) -> Record:
        """A client that leaves as soon as the request is in `phase`."""
        record = self.record(wanted)

        async def read() -> None:
            async with self.lifecycle.open(wanted, record) as stream:
                async for _ in stream:
                    pass

        task = asyncio.create_task(read())
        await until(lambda: record.phase is phase or record.phase.final)
        assert record.phase is phase, record
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return record

    async def settled(self, within_s: float = 1.0) -> None:
        """Nothing is held on either side, within the bound that clients are promised; for `within_s` see `until`."""

        def idle() -> bool:
            return self.cluster.integrity().idle and all(member.idle for member in self.members.values())

        def held() -> str:
            return f"{self.cluster.integrity()} {[(m.name, m.held) for m in self.members.values()]}"

        await until(idle, within_s, held)
        assert not self.cluster.integrity().overdue


@asynccontextmanager
async def fleet(roles: Iterable[tuple[str, Role]] = (), **options: Any) -> AsyncIterator[Fleet]:
    """`options`: `settings` for the gateway, `scripts` by worker name, everything else for every engine.

    At the end nothing may be held anywhere, unless a worker was stopped on purpose.
    """
    settings = options.pop("settings", None) or config()
    scripts = options.pop("scripts", {})
    async with AsyncExitStack() as stack:
        watcher = Watcher()
        cluster = Cluster(settings, watcher)
        built = Fleet(settings, watcher, cluster, Lifecycle(cluster, settings, watcher))
        # Left in the other order, every worker would wait for the gateway's streams to end.
        front = AsyncExitStack()
        await front.enter_async_context(cluster)
        stack.push_async_callback(built.stop_workers)
        stack.push_async_exit(front)
        for name, role in roles:
            await built.add(name, role, scripts.get(name), **options)
        await built.ready()
        yield built


PAIR = (("p0", Role.PREFILL), ("d0", Role.DECODE))
FOUR = (("p0", Role.PREFILL), ("p1", Role.PREFILL), ("d0", Role.DECODE), ("d1", Role.DECODE))
SOLO = (("b0", Role.BOTH),)
