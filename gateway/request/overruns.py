"""Answers that are ended early, because more KV grew than was promised and their class allows it (R-08).

The workers' emergency pools, and their refusals while those are in use, are the milder responses and need nothing here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from gateway.cluster.cluster import Cluster
from gateway.cluster.worker import Worker
from gateway.policy.admission.overrun import Answer, OverrunPolicy, Pressure, Prices, Response, decide
from gateway.policy.control.controller import Controller
from gateway.policy.estimate import Features
from gateway.policy.prefill_choice import ASSUMED_PREFILL_TOKENS_PER_S


@dataclass(frozen=True, slots=True)
class Growing:
    """One answer that a decode worker produces now."""

    name: str
    worker_id: str
    klass: str
    prompt_tokens: int
    generated_tokens: int
    features: Features
    cap: Callable[[], None]


class Source(Protocol):
    """One prompt's running answers."""

    def growing(self) -> Iterator[Growing]: ...


class Overruns:
    """Looks whenever a worker has news, and tells the length model what is under way; nothing is capped where no class may be."""

    def __init__(self, cluster: Cluster, controller: Controller) -> None:
        self._cluster = cluster
        self._controller = controller
        self._sources: set[Source] = set()
        self._acted: dict[str, tuple[str, int]] = {}  # worker -> epoch and number of the state that was acted on
        self.capped = 0
        cluster.subscribe(self.look)

    @contextmanager
    def watching(self, source: Source) -> Iterator[None]:
        self._sources.add(source)
        try:
            yield
        finally:
            self._sources.discard(source)

    def look(self) -> None:
        self._tell()
        policies = self._policies
        if not any(Response.CAP in policy.order for policy in policies.values()):
            return
        pressed = [worker for worker in self._cluster.workers() if self._pressed(worker)]
        for worker in pressed:
            running = {each.name: each for source in self._sources for each in source.growing()}
            mine = {name: each for name, each in running.items() if each.worker_id == worker.worker_id}
            action = decide(self._pressure(worker, list(mine.values())), policies, self._prices)
            if action.response is Response.CAP:
                assert worker.state is not None
                self._acted[worker.worker_id] = worker.state.epoch, worker.state.sequence
                for name in action.request_ids:
                    mine[name].cap()
                    self.capped += 1

    def _tell(self) -> None:
        """That answers go on says how long answers get, before any of them has ended."""
        if self._controller.lengths.untold:
            growing = [each for source in self._sources for each in source.growing()]
            self._controller.lengths.running([(each.features, each.generated_tokens) for each in growing])

    @property
    def _policies(self) -> Mapping[str, OverrunPolicy]:
        """Of the version in force; it may change while answers run."""
        return {name: klass.overrun for name, klass in self._controller.classes.by_name.items()}

    def _pressed(self, worker: Worker) -> bool:
        """Whether the emergency pool, or where there is none all KV, is in use. Of one state it is acted on once: the
        news that capped answers have left is no news of KV, and would cap the next, and the next."""
        state = worker.state
        if not worker.ready or state is None or self._acted.get(worker.worker_id) == (state.epoch, state.sequence):
            return False
        return state.pool_blocks_used >= state.pool_blocks and state.running > 0

    def _pressure(self, worker: Worker, running: list[Growing]) -> Pressure:
        state, size = worker.state, worker.info.block_size_tokens
        assert state is not None
        steps = self._cluster.config.health.watch_interval_s / state.step_time_s if state.step_time_s else 0.0
        return Pressure(
            blocks_total=state.blocks_total,
            pool_blocks=state.pool_blocks,
            held_blocks=state.blocks_used,
            growth_blocks=-(-round(steps * state.running) // size),
            answers=[_answer(each, size, worker.info.kv_bytes_per_token) for each in running],
        )

    @property
    def _prices(self) -> Prices:
        return Prices(self._controller.pace.prompt_tokens_per_s or ASSUMED_PREFILL_TOKENS_PER_S)


def _answer(each: Growing, size: int, kv_bytes_per_token: int) -> Answer:
    tokens = each.prompt_tokens + each.generated_tokens
    blocks = -(-tokens // size)
    return Answer(each.name, each.klass, blocks, tokens, each.generated_tokens, tokens * kv_bytes_per_token)
