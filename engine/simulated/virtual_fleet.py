"""Several engines in virtual time, with hand-offs between them: one clock, and always whoever is due first."""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from engine.simulated.cost import Link
from engine.simulated.job import Event, Job, Kind
from engine.simulated.network import Network
from engine.simulated.timers import Timers
from engine.simulated.virtual import VirtualEngine

#: Told of everything in order of time; may submit, abort, pull and set timers, all at `fleet.now_s`.
Listener = Callable[[str, Event], None]


@dataclass(frozen=True, slots=True)
class _Pull:
    """A hand-off on its way: whose KV, over which link, and how much a block is."""

    writer: str
    held: str
    link: Link
    block_bytes: int


@dataclass(frozen=True, slots=True)
class LostPull:
    """A job that will never run because the worker that held its KV is gone."""

    reader: str
    request_id: str


class VirtualFleet:
    """What is decided outside (policies, clients) is a listener; what happens inside are the engines' own rules.

    Engines wait in a heap by the time at which they are due; entries of engines that changed since are left behind in
    it and skipped.
    """

    def __init__(self, engines: Mapping[str, VirtualEngine]) -> None:
        self.engines: dict[str, VirtualEngine] = {}
        self.network = Network()
        self.now_s = 0.0
        self.moved_bytes = 0
        self._timers = Timers()
        self._pulls: dict[tuple[str, str], _Pull] = {}
        self._order: dict[str, int] = {}
        self._due: list[tuple[float, int, int, str]] = []  # time, order of the engines, version, name
        self._versions: dict[str, int] = {}
        self._stale: dict[str, None] = {}  # engines whose next step is not planned yet
        self._transfer: tuple[float, str] | None = None
        for name, engine in engines.items():
            self.add(name, engine)

    def add(self, name: str, engine: VirtualEngine) -> None:
        """One more engine, or another one under a name: `lose` the old one first."""
        self.engines[name] = engine
        self._order.setdefault(name, len(self._order))
        self._touch(name)

    def lose(self, name: str, successor: VirtualEngine) -> list[LostPull]:
        """The engine is gone with all that it holds and runs. What was being read from it is lost for its readers."""
        lost = [key for key, pull in self._pulls.items() if pull.writer == name and key[0] != name]
        for reader, request_id in [key for key in self._pulls if key[0] == name or self._pulls[key].writer == name]:
            self._break(reader, request_id, gone=name)
        self.add(name, successor)
        return [LostPull(*key) for key in lost]

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Runs an action at a time that has not passed; what is due at the same time waits for it."""
        self._timers.at(time_s, action)

    def deadline(self, delay_s: float, action: Callable[[], None], met: Callable[[], bool]) -> None:
        """Runs an action after a delay. Once it is `met` it has nothing to do, and may be left out."""
        self._timers.deadline(self.now_s, delay_s, action, met)

    def submit(self, engine: str, job: Job) -> None:
        self.engines[engine].submit(job, self.now_s)
        self._touch(engine)

    def pull(self, reader: str, job: Job, *, writer: str, held: str, link: Link, block_bytes: int) -> None:
        """Submits a job with `external` tokens, to be read from a request that the writer holds."""
        self._pulls[reader, job.request_id] = _Pull(writer, held, link, block_bytes)
        self.submit(reader, job)

    def abort(self, engine: str, request_id: str) -> None:
        """As in an engine: a load under way is finished before its blocks are free on both sides."""
        under_way = self.engines[engine].loading(request_id)
        self.engines[engine].abort(request_id, self.now_s)
        self._touch(engine)
        if not under_way:
            self._decline(engine, request_id)

    def hand_over(self, engine: str, request_id: str) -> bool:
        taken = self.engines[engine].hand_over(request_id, self.now_s)
        self._touch(engine)
        return taken

    def release(self, engine: str, request_id: str) -> None:
        self.engines[engine].release(request_id, self.now_s)
        self._touch(engine)

    def limit_step(self, engine: str, tokens: int, chunk_tokens: int) -> None:
        self.engines[engine].limit_step(tokens, chunk_tokens, self.now_s)
        self._touch(engine)

    def settle(self, engine: str) -> VirtualEngine:
        """The engine with every step taken that has ended by now."""
        one = self.engines[engine]
        one.settle(self.now_s)
        self._touch(engine)
        return one

    def run(self, listener: Listener, until_s: float = float("inf")) -> None:
        """Until nothing is due any more, or the time is up."""
        while True:
            time_s, what, name = self._soonest()
            if time_s > self.now_s:
                if self._stale:  # whatever happens at one moment happens before anyone plans a step that begins then
                    self._look_at_stale()
                    continue
                if time_s > until_s or what == "nothing":
                    return
                self.now_s = time_s
            if what == "timer":
                self._timers.fire()
            elif what == "transfer":
                self._arrived(name)
            else:
                self._advance(name, listener)

    def _touch(self, name: str) -> None:
        """What was known of when the engine is due holds no more."""
        if name not in self._stale:
            self._stale[name] = None
            self._versions[name] = self._versions.get(name, 0) + 1

    def _look_at_stale(self) -> None:
        for name in self._stale:
            due_s = self.engines[name].due_s
            if due_s is not None:
                heapq.heappush(self._due, (due_s, self._order[name], self._versions[name], name))
        self._stale.clear()

    def _soonest(self) -> tuple[float, str, str]:
        """Timers go before transfers and those before engines, when due at the same time."""
        time_s, what, name = self._timers.next_s, "timer", ""
        if self._transfer is not None and self._transfer[0] < time_s:
            (time_s, name), what = self._transfer, "transfer"
        due, versions = self._due, self._versions
        while due:
            due_s, _, version, engine = due[0]
            if versions[engine] != version:
                heapq.heappop(due)
                continue
            if due_s < time_s:
                return due_s, "engine", engine
            break
        return time_s, what if time_s < inf else "nothing", name

    def _advance(self, name: str, listener: Listener) -> None:
        events = self.engines[name].advance()
        self._touch(name)
        for event in events:
            if event.kind is Kind.LOADING:
                self._load(name, event)
            elif event.kind in (Kind.STARTED, Kind.FAILED):
                self._decline(name, event.request_id)  # its tokens were all in the cache, or it will never run
            listener(name, event)

    def _decline(self, reader: str, request_id: str) -> None:
        if not self._pulls:
            return
        pull = self._pulls.pop((reader, request_id), None)
        if pull is not None:
            self.release(pull.writer, pull.held)

    def _load(self, reader: str, event: Event) -> None:
        key = (reader, event.request_id)
        pull = self._pulls.get(key)
        if pull is None:
            self._from_host(reader, event)
            return
        name = f"{reader}\n{event.request_id}"
        size = event.blocks * pull.block_bytes
        self.moved_bytes += size

        def begin() -> None:
            if self._pulls.get(key) is pull:
                self.network.add(name, pull.writer, reader, size, pull.link.bytes_per_s, self.now_s)
                self._transfer = self.network.next()

        self.at(self.now_s + pull.link.latency_s, begin)

    def _from_host(self, name: str, event: Event) -> None:
        """Where there is no host memory, the listener brings the tokens itself."""
        engine = self.engines[name]
        if engine.host is None:
            return

        def arrived() -> None:
            if self.engines[name] is engine:
                engine.loaded(event.request_id, self.now_s)
                self._touch(name)

        self.at(engine.host.load(event.blocks, event.cached, self.now_s), arrived)

    def _arrived(self, name: str) -> None:
        self._unplug(name)
        reader, _, request_id = name.partition("\n")
        self.engines[reader].loaded(request_id, self.now_s)
        self._touch(reader)
        self._decline(reader, request_id)

    def _unplug(self, name: str) -> None:
        self.network.remove(name, self.now_s)
        self._transfer = self.network.next()

    def _break(self, reader: str, request_id: str, gone: str) -> None:
        """A pull one end of which is `gone`: the other end gets its blocks back."""
        pull = self._pulls.pop((reader, request_id))
        name = f"{reader}\n{request_id}"
        if name in self.network:
            self._unplug(name)
        if reader != gone:
            engine = self.engines[reader]
            loading = engine.loading(request_id)
            engine.abort(request_id, self.now_s)
            if loading or not engine.total_tokens(request_id):
                engine.loaded(request_id, self.now_s)  # also where it had been aborted while it was loading
            self._touch(reader)
        if pull.writer != gone:
            self.release(pull.writer, pull.held)
