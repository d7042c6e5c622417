"""Names of the connector's own telemetry, shared by the engine's processes and the worker that reads them."""

#: Rows of [request id, writer, bytes, seconds], one a transfer and rank, from NIXL's own telemetry.
PULLS = "tandem_pulls"
#: Writers whose pull failed, one entry a failed request and rank.
FAILED_PULLS = "tandem_failed_pulls"
#: Requests whose pinned KV has been freed on every rank: read, released or expired.
ENDED_SENDS = "tandem_ended_sends"
#: Requests whose pinned KV reached the end of its lease, one entry a rank.
EXPIRED_SENDS = "tandem_expired_sends"

ALL = (PULLS, FAILED_PULLS, ENDED_SENDS, EXPIRED_SENDS)
