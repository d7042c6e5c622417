"""The workers of a layout with their engines, links and nodes, and the gateway's view of them."""

from collections.abc import Callable, Iterator

from decode_pool.ledger import Load
from engine.simulated.cost import Link as PhysicalLink
from engine.simulated.neighbours import stretch
from engine.simulated.virtual import VirtualEngine
from engine.simulated.virtual_fleet import LostPull, VirtualFleet
from gateway.cluster.health import RECONNECT_S
from gateway.policy.prefix import BlockHashes
from gateway.policy.routing import LINK_RANK, Fleet, Link
from loadgen.failure import LoadgenError
from loadgen.simulate.layout import Layout, Pool
from loadgen.simulate.roles import Roles
from loadgen.simulate.view import View
from loadgen.simulate.worker import SimWorker, role_name
from proto.worker import Role

#: Links that do not leave a node.
_INSIDE = frozenset({"nvlink", "shm"})


class SimFleet:
    """Pairs are linked all to all. Workers fill nodes in order; one that does not fit begins the next."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.engines = VirtualFleet({})
        self.workers: dict[str, SimWorker] = {}
        self.window = 0
        self.kv_tokens = 0
        self._links: dict[str, dict[str, Link]] = {}
        self._physical: dict[tuple[str, str], PhysicalLink] = {}
        self._view = View(self._links)
        self._seats = 0
        self.roles = None if layout.roles is None else Roles(self, layout.roles(lambda: self.engines.now_s))
        self._counts: dict[Role, int] = {}
        for pool in layout.pools:
            for _ in range(pool.workers):
                self.add(pool)
        if not any(worker.role.decodes for worker in self.workers.values()):
            raise LoadgenError("the layout has no worker that decodes")

    @property
    def now_s(self) -> float:
        return self.engines.now_s

    def worker(self, name: str) -> SimWorker:
        try:
            return self.workers[name]
        except KeyError:
            raise LoadgenError(f"there is no worker {name!r}; there are {', '.join(self.workers)}") from None

    def add(self, pool: Pool) -> SimWorker:
        """One more worker of a pool, ready at once."""
        layout = self.layout
        number = self._counts.get(pool.role, 0)
        self._counts[pool.role] = number + 1
        worker = SimWorker(
            f"{role_name(pool.role)}-{number}",
            pool,
            self._seat(pool.gpus_each),
            layout.policies,
            lambda: self.engines.now_s,
            admission=layout.admission,
            max_pulls=layout.max_pulls,
        )
        self.engines.add(worker.name, self._engine(worker))
        for other in self.workers.values():
            self._connect(worker, other)
            self._connect(other, worker)
        self.workers[worker.name] = worker
        self.changed()
        return worker

    def lose(self, worker: SimWorker) -> list[LostPull]:
        """The worker's engine is gone with everything in it; the worker is down until `back`."""
        worker.up = False
        worker.lost_s = self.now_s
        worker.renew()
        lost = self.engines.lose(worker.name, self._engine(worker))
        self.changed()
        return lost

    def back(self, worker: SimWorker) -> None:
        worker.up = True
        self.changed()

    def changed(self) -> None:
        """Who is up, or what somebody's role is, has changed."""
        up = [worker for worker in self.workers.values() if worker.up]
        self._view.adopt(up)
        decoders = [worker.pool.limits for worker in self.workers.values() if worker.role.decodes]
        self.window = max((limits.max_model_len for limits in decoders), default=0)
        self.kv_tokens = max((limits.blocks * limits.block_size for limits in decoders), default=0)

    def view(self, prefix: BlockHashes) -> Fleet:
        """What may take work now: the gateway's own types."""
        for worker in self._view.stale:
            self.load(worker)
        return self._view.fleet(prefix, self.now_s)

    def recovering(self, *, prefill: bool) -> bool:
        """Whether somebody who could do the leg was lost a moment ago."""
        return any(
            not worker.up
            and worker.lost_s is not None
            and self.now_s - worker.lost_s < RECONNECT_S
            and (worker.role.prefills if prefill else worker.role.decodes)
            for worker in self.workers.values()
        )

    def settled(self, worker: SimWorker) -> VirtualEngine:
        return self.engines.settle(worker.name)

    def load(self, worker: SimWorker) -> Load:
        """The engine's own figures, where reservations do not tell everything; brings `excess` up to date."""
        load = self.figures(worker)
        if not worker.exact:
            worker.reckon(load)
        return load

    def figures(self, worker: SimWorker) -> Load:
        if worker.exact:
            worker.nothing_beyond()
            return Load()
        return worker.load(self.settled(worker))

    def inexact(self) -> Iterator[SimWorker]:
        return (worker for worker in self.workers.values() if not worker.exact or worker.excess)

    def link(self, writer: str, reader: str) -> PhysicalLink:
        return self._physical[writer, reader]

    def links_of(self, reader: str) -> dict[str, Link]:
        return self._links.get(reader, {})

    def _engine(self, worker: SimWorker) -> VirtualEngine:
        pool = worker.pool
        layout = self.layout
        return VirtualEngine(
            pool.limits,
            pool.profile.cost,
            gaps=layout.gaps,
            host=pool.host_memory(layout.host),
            stretch=self._beside(worker),
            closed_form=layout.closed_form,
        )

    def _beside(self, worker: SimWorker) -> Callable[[bool], float] | None:
        """How engines that share cores (those of a measured CPU) slow each other down; all of a layout are neighbours."""
        slowdown = worker.pool.profile.sharing
        if not slowdown:
            return None

        def by(prompts: bool) -> float:
            others = (engine for name, engine in self.engines.engines.items() if name != worker.name)
            return stretch(slowdown, sum(engine.computes for engine in others), prompts=prompts)

        return by

    def _seat(self, gpus: int) -> int:
        """The node of the worker's first GPU."""
        size = self.layout.gpus_per_node
        if gpus <= size and self._seats % size + gpus > size:
            self._seats += size - self._seats % size
        node = self._seats // size
        self._seats += gpus
        return node

    def _connect(self, writer: SimWorker, reader: SimWorker) -> None:
        """Both ends pay for a transfer, so the slower one counts. No link that both have: no pair."""
        mine, theirs = writer.pool.profile.links, reader.pool.profile.links
        usable = [name for name in mine if name in theirs and (writer.node == reader.node or name not in _INSIDE)]
        if self.layout.transport:
            usable = [name for name in usable if name == self.layout.transport]
        if not usable or writer.pool.limits.block_size != reader.pool.limits.block_size:
            return
        name = min(usable, key=lambda one: LINK_RANK.get(one, len(LINK_RANK)))
        rate = min(mine[name].bytes_per_s, theirs[name].bytes_per_s)
        self._physical[writer.name, reader.name] = PhysicalLink(rate, max(mine[name].latency_s, theirs[name].latency_s))
        self._links.setdefault(reader.name, {})[writer.name] = Link(name, rate)
