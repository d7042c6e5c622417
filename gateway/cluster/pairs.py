"""The (prefill, decode) pairs: which may hand over KV, over what, and which have stopped working."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.cluster.states import PAIR_TRANSITIONS, PairState
from gateway.config import HealthConfig
from gateway.policy.distance import Distance, distance
from gateway.policy.routing import Link
from proto.worker import WarmResult, WorkerInfo
from transfer.compatibility import incompatibilities

PairMoved = Callable[[str, str, PairState, PairState, str], None]


@dataclass(slots=True)
class Pair:
    """One writer and one reader, each in one epoch: a restart of either makes a new pair (B-51)."""

    prefill: WorkerInfo
    decode: WorkerInfo
    state: PairState = PairState.NEW
    reason: str = ""
    transport: str = ""
    bytes_per_s: float = 0.0
    handshake_s: float = 0.0
    failures: int = 0  # in a row
    quarantines: int = 0
    retry_s: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        return self.prefill.worker_id, self.decode.worker_id

    @property
    def link(self) -> Link:
        return Link(self.transport, self.bytes_per_s, self.distance)

    @property
    def distance(self) -> Distance:
        return distance(self.prefill.topology, self.decode.topology)


class PairBook:
    def __init__(self, config: HealthConfig, clock: Callable[[], float], moved: PairMoved) -> None:
        self._config = config
        self._clock = clock
        self._moved = moved
        self._pairs: dict[tuple[str, str], Pair] = {}
        self.links: dict[str, dict[str, Link]] = {}  # of usable pairs: decode worker, prefill worker

    def __iter__(self) -> Iterator[Pair]:
        return iter(list(self._pairs.values()))

    def get(self, prefill_worker: str, decode_worker: str) -> Pair | None:
        return self._pairs.get((prefill_worker, decode_worker))

    def meet(self, prefill: WorkerInfo, decode: WorkerInfo) -> Pair:
        """The pair of two workers in these epochs; a new one, checked for compatibility, if they have not met."""
        pair = self._pairs.get((prefill.worker_id, decode.worker_id))
        if pair and pair.prefill.epoch == prefill.epoch and pair.decode.epoch == decode.epoch:
            return pair
        pair = Pair(prefill, decode)
        self._unlink(pair.key)
        self._pairs[pair.key] = pair
        if reasons := incompatibilities(prefill, decode):
            self._move(pair, PairState.INCOMPATIBLE, "; ".join(reasons))
        return pair

    def forget(self, worker_id: str) -> None:
        for key in [key for key in self._pairs if worker_id in key]:
            self._unlink(key)
            del self._pairs[key]

    def to_warm(self) -> list[Pair]:
        """Pairs that have not shaken hands yet, and quarantined ones whose time has come."""
        now_s = self._clock()
        return [
            pair
            for pair in self._pairs.values()
            if pair.state is PairState.NEW or (pair.state is PairState.QUARANTINED and pair.retry_s <= now_s)
        ]

    def warming(self, pair: Pair) -> None:
        self._move(pair, PairState.WARMING, "shaking hands")

    def warmed(self, pair: Pair, result: WarmResult) -> None:
        if not self._current(pair):
            return
        if result.ok:
            pair.transport = result.transport
            pair.bytes_per_s = result.bytes_per_s
            pair.handshake_s = result.handshake_s
            pair.failures = 0
            self._move(pair, PairState.USABLE, "")
        else:
            self._quarantine(pair, f"hand-shake failed: {result.detail or 'no detail given'}")

    def success(self, prefill_worker: str, decode_worker: str) -> None:
        if pair := self.get(prefill_worker, decode_worker):
            pair.failures = 0
            pair.quarantines = 0

    def failure(self, prefill_worker: str, decode_worker: str, message: str) -> None:
        """A pull of this pair failed; enough of them in a row and it carries nothing until it shakes hands again."""
        pair = self.get(prefill_worker, decode_worker)
        if pair is None or pair.state is not PairState.USABLE:
            return
        pair.failures += 1
        if pair.failures >= self._config.pair_failures_to_quarantine:
            self._quarantine(pair, f"{pair.failures} failed transfers in a row: {message}")

    def _quarantine(self, pair: Pair, reason: str) -> None:
        pair.quarantines += 1
        delay_s = self._config.probe_backoff_s * 2 ** (pair.quarantines - 1)
        pair.retry_s = self._clock() + min(delay_s, self._config.probe_backoff_max_s)
        self._move(pair, PairState.QUARANTINED, reason)

    def _unlink(self, key: tuple[str, str]) -> None:
        prefill_worker, decode_worker = key
        self.links.get(decode_worker, {}).pop(prefill_worker, None)

    def _current(self, pair: Pair) -> bool:
        return self._pairs.get(pair.key) is pair

    def _move(self, pair: Pair, after: PairState, reason: str) -> None:
        before = pair.state
        if after not in PAIR_TRANSITIONS[before]:
            raise RuntimeError(f"a pair cannot move from {before} to {after}")
        pair.state = after
        pair.reason = reason
        if after is PairState.USABLE:
            self.links.setdefault(pair.decode.worker_id, {})[pair.prefill.worker_id] = pair.link
        else:
            self._unlink(pair.key)
        self._moved(*pair.key, before, after, reason)
