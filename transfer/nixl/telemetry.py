"""What the connector reports of transfers, by request and by writer."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import NixlKVConnectorStats

from transfer.nixl import rows


class TransferStats(NixlKVConnectorStats):  # type: ignore[misc]  # vLLM is not there where types are checked
    """The stock figures, plus the rows that say whose KV it was. Lists only, so that ranks add up by joining."""

    data: dict[str, Any]

    def reset(self) -> None:
        super().reset()
        self.data.update({key: [] for key in rows.ALL})

    def is_empty(self) -> bool:
        return bool(super().is_empty()) and not any(self.data[key] for key in rows.ALL)

    def attribute(self, request_id: str, writer: str, since: int) -> None:
        """Says that the transfers recorded from index `since` on belong to a request and a writer."""
        sizes = self.data["bytes_transferred"][since:]
        seconds = self.data["transfer_duration"][since:]
        pulls = [[request_id, writer, size, taken] for size, taken in zip(sizes, seconds, strict=True)]
        self.data[rows.PULLS].extend(pulls)
