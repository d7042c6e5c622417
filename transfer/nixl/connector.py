"""vLLM's NIXL connector with explicit release, pair warm-up and telemetry by writer.

vLLM imports this module by path in the engine's processes; nothing else should. The class keeps the
stock name because vLLM recognises connectors by it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlPullConnector
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import NixlPullConnectorScheduler
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker

from proto.precedence import let_in
from transfer.nixl import handover, rows, step_limit
from transfer.nixl.probe import LinkProbe
from transfer.nixl.telemetry import TransferStats


@contextmanager
def _own_cores() -> Iterator[None]:
    """Keeps the thread on the cores that it has.

    On CPUs the stock connector binds the thread that creates it to the last core of each NUMA node, for its transfers.
    With one rank in a process that thread computes the model, so all engines of a machine would share one core.
    """
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _teach() -> None:
    """The scheduler's half lives where the engine's core does, which imports this module only then."""
    from vllm.v1.engine.core import EngineCore

    handover.teach(EngineCore)
    step_limit.teach(EngineCore)


class NixlConnector(NixlPullConnector):  # type: ignore[misc]  # vLLM is not there where types are checked
    """Facade on both sides: the scheduler's and each rank's."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        # past the stock pull connector, which would build its own two halves
        super(NixlPullConnector, self).__init__(vllm_config, role, kv_cache_config)
        self.connector_scheduler: Any = None
        self.connector_worker: Any = None
        self._ended: list[str] = []
        if role == KVConnectorRole.SCHEDULER:
            self.connector_scheduler = NixlPullConnectorScheduler(vllm_config, self.engine_id, kv_cache_config)
            _teach()
        else:
            self.connector_worker = ConnectorWorker(vllm_config, self.engine_id, kv_cache_config)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The engine lets a request in. Going first was for the time of waiting: whom vLLM preempts it finds by priority, too."""
        request.priority = let_in(request.priority)
        super().update_state_after_alloc(request, blocks, num_external_tokens)

    def update_connector_output(self, connector_output: Any) -> None:
        super().update_connector_output(connector_output)
        self._ended.extend(connector_output.finished_sending or ())

    def get_kv_connector_stats(self) -> Any:
        if self.connector_scheduler is None:
            return super().get_kv_connector_stats()
        if not self._ended:
            return None
        stats = TransferStats()
        stats.data[rows.ENDED_SENDS] = self._ended
        self._ended = []
        return stats

    def hand_over(self, request: Any, window: int) -> bool:
        """A running request ends as soon as somebody else could go on, with its KV kept; False: it goes on as it was."""
        from vllm.v1.request import RequestStatus

        if request is None or request.status != RequestStatus.RUNNING:
            return False
        if self.connector_scheduler.use_host_buffer:  # KV that has to be copied out first is copied as it is computed
            return False
        tokens = handover.cut(request, self.connector_scheduler.block_size, window)
        if tokens:
            request.max_tokens = tokens
            request.kv_transfer_params = {"do_remote_decode": True}
            # The ranks keep KV of those alone that they were told of while these ran.
            self.connector_scheduler._reqs_in_batch.add(request.request_id)
        return tokens > 0

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Any:
        return TransferStats() if data is None else TransferStats(data=data)


class ConnectorWorker(NixlPullConnectorWorker):  # type: ignore[misc]  # likewise
    """One rank's half. Everything here runs on the rank's main thread, between or inside steps."""

    def __init__(self, vllm_config: Any, engine_id: str, kv_cache_config: Any) -> None:
        with _own_cores():
            super().__init__(vllm_config, engine_id, kv_cache_config)
        self.xfer_stats = TransferStats()
        self._to_release: set[str] = set()
        self._probes: dict[str, LinkProbe] = {}

    def release(self, request_id: str) -> bool:
        """Gives up the KV pinned for a reader that will not come; freed with this step's results."""
        if request_id not in self._reqs_to_process and request_id not in self._reqs_to_send:
            return False
        self._to_release.add(request_id)
        return True

    def get_transfer_results(self) -> Any:
        results = super().get_transfer_results()
        # A request is pinned only once the scheduler's message about it has arrived: until then it waits here.
        for request_id in self._to_release & self._reqs_to_send.keys():
            self._reqs_to_process.discard(request_id)
            del self._reqs_to_send[request_id]
            self.consumer_notification_counts_by_req.pop(request_id, None)
            self.expected_consumer_notifications_by_req.pop(request_id, None)
            results.finished_sending.add(request_id)
        self._to_release &= self._reqs_to_process
        return results

    def _reap_expired_send_leases(self, done_sending: set[str]) -> None:
        expired: set[str] = set()
        super()._reap_expired_send_leases(expired)
        self.xfer_stats.data[rows.EXPIRED_SENDS].extend(expired)
        done_sending |= expired

    def _pop_done_transfers(self, transfers: dict[str, list[Any]]) -> tuple[set[str], set[str]]:
        done: set[str] = set()
        failed: set[str] = set()
        for request_id in list(transfers):
            single = {request_id: transfers.pop(request_id)}
            recorded = len(self.xfer_stats.data["bytes_transferred"])
            newly_done, newly_failed = super()._pop_done_transfers(single)
            transfers.update(single)
            self.xfer_stats.attribute(request_id, self._writer_of(request_id), recorded)
            done |= newly_done
            failed |= newly_failed
        return done, failed

    def _handle_failed_transfer(
        self, req_id: str, handle: Any, failed_req_ids: set[str] | None = None, record_failed_transfer: bool = True
    ) -> bool:
        if failed_req_ids is None or req_id not in failed_req_ids:
            self.xfer_stats.data[rows.FAILED_PULLS].append(self._writer_of(req_id))
        return bool(super()._handle_failed_transfer(req_id, handle, failed_req_ids, record_failed_transfer))

    def _writer_of(self, request_id: str) -> str:
        meta = self._recving_metadata.get(request_id)
        return "" if meta is None or meta.remote is None else str(meta.remote.engine_id)

    def warm(self, peer: dict[str, Any]) -> dict[str, Any]:
        """One move of the hand-shake and measurement with a peer; call again until it has ended."""
        engine_id = str(peer["engine_id"])
        probe = self._probes.get(engine_id)
        if probe is None or (probe.ended and engine_id not in self._remote_agents):
            probe = self._probes[engine_id] = LinkProbe(self, peer)
        return probe.advance()

    def describe(self) -> dict[str, Any]:
        """The shape of this rank's KV."""
        return {
            "groups": len(self.kv_cache_config.transfer_groups),
            "layout": str(self.kv_cache_layout),
            "bytes_per_block": sum(self.block_len_per_layer) * self._physical_blocks_per_logical_kv_block,
        }
