"""What a worker can ask of each of its engine's ranks, mixed into vLLM's worker class."""

import os
from typing import Any


class WorkerExtension:
    """Every method runs on every rank, on its main thread, between two steps."""

    def tandem_release(self, request_id: str) -> bool:
        return bool(_connector().release(request_id))

    def tandem_warm(self, peer: dict[str, Any]) -> dict[str, Any]:
        warmed: dict[str, Any] = _connector().warm(peer)
        return warmed

    def tandem_describe(self) -> dict[str, Any]:
        described: dict[str, Any] = _connector().describe()
        return described | {"rendezvous": os.environ.get("VLLM_DIST_IDENT", "")}


def _connector() -> Any:
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    return get_kv_transfer_group().connector_worker
