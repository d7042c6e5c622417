"""Warming a pair: hand-shake, first contact of the two UCX endpoints, and a measured read."""

import time
from typing import Any

#: Reads of the peer's block 0. The first pays for wiring the endpoints up, the best of the rest is the link.
_READS = 4
#: How long one call may keep the rank's main thread waiting for a read.
_PATIENCE_S = 0.02


class LinkProbe:
    """Advances a little at each call, so that an engine under load is never held up.

    What is read is block 0, which vLLM sets aside as padding on both ends: no request's KV lives there.
    """

    def __init__(self, worker: Any, peer: dict[str, Any]) -> None:
        self._worker = worker
        self._peer = peer
        self._engine_id = str(peer["engine_id"])
        self._started_s = time.perf_counter()
        self._future: Any = None
        self._reads = 0
        self._transfers: list[Any] = []
        self._posted_s = 0.0
        self._bytes = 0
        self._state = "shaking"
        self._detail = ""
        self._handshake_s = 0.0
        self._bytes_per_s = 0.0

    @property
    def ended(self) -> bool:
        return self._state in ("ready", "failed")

    def advance(self) -> dict[str, Any]:
        if self._state == "shaking":
            self._shake()
        if self._state == "reading":
            try:
                self._read()
            except Exception as error:  # the link works or it does not; a failed measurement must not stop the engine
                self._end("ready", f"not measured: {error}")
        return {
            "state": self._state,
            "detail": self._detail,
            "handshake_s": self._handshake_s,
            "bytes_per_s": self._bytes_per_s,
        }

    def _shake(self) -> None:
        peer = self._peer
        if self._future is None:
            self._future = self._worker._ensure_handshake(
                self._engine_id, str(peer["host"]), int(peer["port"]), int(peer["tp"]), 1, int(peer["pp"])
            )
        if self._engine_id in self._worker._remote_agents:
            self._handshake_s = time.perf_counter() - self._started_s
            self._state = "reading"
        elif self._future is None or self._future.done():
            error = None if self._future is None else self._future.exception()
            if error is not None:
                self._end("failed", f"{type(error).__name__}: {error}")

    def _read(self) -> None:
        nixl = self._worker.nixl_wrapper
        if not self._transfers:
            self._posted_s = time.perf_counter()
            self._transfers = self._post()
        deadline_s = time.perf_counter() + _PATIENCE_S
        while True:
            states = [nixl.check_xfer_state(transfer) for transfer in self._transfers]
            if "PROC" not in states or time.perf_counter() > deadline_s:
                break
        if "PROC" in states:
            return
        if any(state != "DONE" for state in states):
            raise RuntimeError(f"transfer states {states}")
        self._record(nixl)

    def _record(self, nixl: Any) -> None:
        telemetry = [nixl.get_xfer_telemetry(transfer) for transfer in self._transfers]
        moved = sum(entry.totalBytes for entry in telemetry)
        seconds = max(max(entry.xferDuration for entry in telemetry) / 1e6, 1e-9)
        for transfer in self._transfers:
            nixl.release_xfer_handle(transfer)
        self._transfers = []
        self._reads += 1
        if self._reads == 1:
            self._handshake_s = time.perf_counter() - self._started_s
        else:
            self._bytes_per_s = max(self._bytes_per_s, moved / seconds)
        if self._reads == _READS:
            self._end("ready", "")

    def _post(self) -> list[Any]:
        """One read of block 0 from every rank of the peer that this rank reads from."""
        worker, engine_id = self._worker, self._engine_id
        info = worker.transfer_topo.get_engine_info(engine_id)
        ratio = worker.transfer_topo.tp_ratio(info.remote_tp_size)
        size = info.remote_block_size
        if worker._has_mamba or worker._mixed_mem_types or size != worker.block_size:
            raise RuntimeError("this KV layout has no plain block to read")
        ranks = worker.tp_mappings[engine_id].all_source_ranks
        local_ids = self._descriptors(worker.engine_id, worker._physical_blocks_per_logical_kv_block)
        remote_ids = self._descriptors(engine_id, info.remote_physical_blocks_per_logical)
        posted = []
        for index, rank in enumerate(ranks):
            split = ratio < 0 and (not worker.use_mla or len(ranks) > 1)
            local = (
                worker.src_xfer_handles_by_tp_ratio[(ratio, size)][index]
                if split
                else worker.src_xfer_handles_by_block_size[size]
            )
            remote = worker.dst_xfer_side_handles[engine_id][rank]
            transfer = worker.nixl_wrapper.make_prepped_xfer("READ", local, local_ids, remote, remote_ids)
            worker.nixl_wrapper.transfer(transfer)
            posted.append(transfer)
        return posted

    def _descriptors(self, engine_id: str, physical_blocks: int) -> Any:
        worker = self._worker
        return worker._compute_desc_ids(
            block_ids=tuple([0] for _ in worker.kv_cache_config.transfer_groups),
            dst_num_blocks=worker.dst_num_blocks[engine_id],
            block_size_ratio=None,
            physical_blocks_per_logical=physical_blocks,
            region_num_blocks=worker.dst_region_num_blocks.get(engine_id) or None,
            region_group_ids=worker.dst_region_group_ids.get(engine_id) or None,
            uses_region_group_mapping=worker.dst_uses_region_group_mapping[engine_id],
        )

    def _end(self, state: str, detail: str) -> None:
        self._state = state
        self._detail = detail
