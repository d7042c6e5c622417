"""One schedule through one layout, in virtual time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from engine.simulated.host_memory import HostCounters, together
from gateway.request.errors import Reason, RequestError
from loadgen.client.telemetry import Telemetry
from loadgen.result import Result
from loadgen.schedule import Schedule
from loadgen.simulate.changes import Addition, Change, Failure, RoleChange
from loadgen.simulate.clients import Clients
from loadgen.simulate.desk import Desk
from loadgen.simulate.fleet import SimFleet
from loadgen.simulate.flight import Flight
from loadgen.simulate.garbage import seldom_collected
from loadgen.simulate.ground import Ground
from loadgen.simulate.layout import Layout
from loadgen.simulate.legs import Legs
from loadgen.simulate.meter import Meter
from loadgen.simulate.worker import SimWorker
from loadgen.stream import Stream


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """What one worker did. Shares are means over the run; `busy` is the share of time in steps.

    Counters are those of the worker's last epoch: a failure takes the earlier ones with it.
    """

    name: str
    role: str
    gpus: int
    busy: float
    kv_used: float
    kv_stranded: float
    preemptions: int
    recomputed_tokens: int
    generated_tokens: int
    prompt_tokens: int
    cached_prompt_tokens: int
    steps: int
    host: HostCounters | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """`results` in order of the schedule; `duration_s` of virtual time."""

    results: tuple[Result, ...]
    telemetry: Telemetry
    workers: tuple[WorkerFigures, ...]
    duration_s: float
    handoffs: int
    moved_bytes: int
    notes: tuple[str, ...] = field(default=())

    @property
    def preemptions(self) -> int:
        return sum(worker.preemptions for worker in self.workers)

    @property
    def recomputed_tokens(self) -> int:
        return sum(worker.recomputed_tokens for worker in self.workers)


def simulate(layout: Layout, schedule: Schedule) -> Outcome:
    """Pure: equal arguments give equal outcomes."""
    return Simulation(layout, schedule).run()


def simulate_stream(layout: Layout, stream: Stream, took: Callable[[Result], None]) -> Outcome:
    """As `simulate`, for traffic without end: `took` gets each result when its request ends, and the outcome has none."""
    return Simulation(layout, stream, took).run()


class Simulation:
    """The shell that joins fleet, desk, legs and clients. Kept apart from `simulate` so that tests can look inside."""

    def __init__(
        self, layout: Layout, schedule: Schedule | Stream, took: Callable[[Result], None] | None = None
    ) -> None:
        self.layout = layout
        self.schedule = schedule
        self.fleet = SimFleet(layout)
        self.legs = Legs(Ground(self.fleet, layout.gateway, lambda: self.desk, self._done, self._failed))
        self.desk = Desk(self.fleet, layout.gateway, self.legs.begin, self._refused)
        self.clients = Clients(schedule, self.fleet, self.desk, self.legs, self._over, took)
        self.meter = Meter(
            self.fleet, lambda: len(self.desk.dispatch), lambda: self.legs.handoffs, lambda: self.clients.left > 0
        )
        for change in layout.changes:
            self._plan(change)

    def run(self) -> Outcome:
        self.meter.start()
        self.clients.start()
        self.legs.moves.start(lambda: self.clients.left > 0)
        engines = self.fleet.engines
        with seldom_collected():
            engines.run(self.legs.hear)
        if self.clients.left:
            raise RuntimeError(f"{self.clients.left} requests never ended: a defect of the simulator")
        results = tuple(result for result in self.clients.results if result is not None)
        duration_s = self.clients.last_s
        return Outcome(
            results,
            self.meter.telemetry,
            tuple(self._figures(name, duration_s) for name in self.fleet.workers),
            duration_s,
            self.legs.handoffs,
            engines.moved_bytes,
            self._notes(),
        )

    def _done(self, flight: Flight) -> None:
        self.clients.done(flight)

    def _failed(self, flight: Flight, reason: Reason, given: int) -> None:
        self.clients.failed(flight, reason, given)

    def _refused(self, flight: Flight, error: RequestError) -> None:
        self.clients.refused(flight, error)

    def _over(self) -> None:
        """Timers that nobody waits for any more go on for minutes; what is measured ends here."""
        self.fleet.engines.at(self.fleet.now_s, self.meter.finish)

    # changes

    def _plan(self, change: Change) -> None:
        if not isinstance(change, Addition):
            self.fleet.worker(change.worker)  # a misspelt name is said at once
        action: Callable[[], None]
        match change:
            case Failure():
                action = partial(self._lose, change)
            case RoleChange():
                action = partial(self._change_role, change)
            case Addition():
                action = partial(self._add, change)
        delay_s = self.layout.start_s if isinstance(change, Addition) else 0.0
        self.fleet.engines.at(change.at_s + delay_s, action)

    def _lose(self, failure: Failure) -> None:
        worker = self.fleet.worker(failure.worker)
        lost = self.fleet.lose(worker)
        epoch = worker.epoch
        self.fleet.engines.at(self.fleet.now_s + failure.down_s, lambda: self._back(worker, epoch))
        self.legs.lost(worker, [pull.request_id for pull in lost])
        self.desk.pump()

    def _back(self, worker: SimWorker, epoch: int) -> None:
        if worker.epoch == epoch:  # else it died again meanwhile
            self.fleet.back(worker)
            self.desk.pump()

    def _change_role(self, change: RoleChange) -> None:
        self.fleet.worker(change.worker).role = change.role
        self.fleet.changed()
        self.desk.look_again()
        self.desk.pump()

    def _add(self, addition: Addition) -> None:
        pool = self.layout.pool_of(addition)
        for _ in range(addition.count):
            self.fleet.add(pool)
        self.desk.pump()

    # figures

    def _figures(self, name: str, duration_s: float) -> WorkerFigures:
        worker, engine = self.fleet.workers[name], self.fleet.engines.engines[name]
        counters = engine.counters
        used, stranded = self.meter.means(worker)
        return WorkerFigures(
            name,
            worker.role.value,
            worker.pool.gpus_each,
            engine.busy_s / duration_s if duration_s else 0.0,
            used,
            stranded,
            counters.preemptions,
            counters.recomputed_tokens,
            engine.generated_tokens,
            counters.prompt_tokens,
            counters.cached_prompt_tokens,
            engine.steps,
            None if engine.host is None else engine.host.counters,
        )

    def _notes(self) -> tuple[str, ...]:
        layout, over = self.layout, self.layout.overheads
        notes = [
            "gateway overheads assumed: "
            f"{over.reserve_s * 1e3:g} ms to reserve, {over.prefill_s * 1e3:g} + {over.decode_s * 1e3:g} ms for the legs",
            self._stranded_note(),
        ]
        notes += self._host_notes()
        if moves := self.legs.moves.counts:
            told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(moves.items()))
            notes.append(f"running answers that were to go on at another worker: {told}")
        if not layout.admission:
            notes.append("no admission control: engines queue and preempt on their own")
        return tuple(notes)

    def _stranded_note(self) -> str:
        """Each node by itself, where there are several: KV that is free on one helps nobody on the other."""
        by_node: dict[int, list[float]] = {}
        for worker in self.fleet.workers.values():
            if worker.role.decodes:
                by_node.setdefault(worker.node, []).append(self.meter.means(worker)[1])
        every = [share for shares in by_node.values() for share in shares]
        note = f"stranded KV: {sum(every) / max(1, len(every)):.1%} of the decode workers', on the mean"
        if len(by_node) < 2:
            return note
        told = ", ".join(f"{sum(shares) / len(shares):.1%}" for _, shares in sorted(by_node.items()))
        return f"{note}; on {len(by_node)} nodes: {told}; most on one worker {max(every):.1%}"

    def _host_notes(self) -> list[str]:
        counters = [engine.host.counters for engine in self.fleet.engines.engines.values() if engine.host is not None]
        if not counters:
            return []
        whole = together(counters)
        prompts = sum(engine.counters.prompt_tokens for engine in self.fleet.engines.engines.values())
        return [
            f"host memory: {whole.out_bytes / 1e9:.3g} GB out, {whole.in_bytes / 1e9:.3g} GB in, {whole.loaded_tokens:,} tokens "
            f"not computed again ({whole.loaded_tokens / max(1, prompts):.1%} of all prompts', "
            f"{whole.tokens_per_byte * 1e6:.3g} for each MB moved), {whole.saved_s:.3g} s of prefill spared"
            + ("; harmful: bytes moved for nothing" if whole.harmful else "")
        ]
