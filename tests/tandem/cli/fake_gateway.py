"""The parts of a gateway that the command line talks to, in a thread."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STATUS: dict[str, Any] = {
    "gateway_id": "gw-1",
    "mode": "disaggregated",
    "missing": "",
    "workers": [
        {
            "worker_id": "prefill-0",
            "role": "prefill",
            "status": "ready",
            "engine": "vllm",
            "engine_version": "0.32.0",
            "device": "cpu",
            "tp": 1,
            "block_size_tokens": 128,
            "blocks_total": 100,
            "lease_tickets": 2,
        },
        {
            "worker_id": "decode-0",
            "role": "decode",
            "status": "ejected",
            "reason": "3 faults in a row",
            "block_size_tokens": 128,
            "blocks_total": 200,
            "blocks_used": 50,
            "blocks_reserved": 20,
            "running": 3,
            "step_time_s": 0.104,
            "blocks_promised": 120.4,
            "overrun_risk": 0.004,
            "error_budget": 0.12,
            "pool_blocks": 4,
            "pool_blocks_used": 1,
            "preemptions": 2,
            "recomputed_tokens": 3210,
        },
    ],
    "pairs": [
        {
            "prefill_worker": "prefill-0",
            "decode_worker": "decode-0",
            "state": "usable",
            "transport": "shm",
            "bytes_per_s": 3.5e9,
            "transfers": 7,
            "bytes": 1_500_000_000,
            "seconds": 0.5,
            "failures": 1,
        }
    ],
    "in_flight": {"decoding": 3, "queued": 0},
    "queued": 4,
    "policy": {
        "version": "blue-7",
        "rule": "forecast",
        "admitted": 7,
        "lengths": [
            {
                "klass": "default",
                "requests": 1200,
                "under_requests": 90,
                "under_tokens": 4567,
                "over_requests": 1000,
                "over_tokens": 87654,
                "estimated_tokens": 100_000.0,
                "realised_tokens": 95_000,
                "drifts": 1,
            }
        ],
        "queue": [{"band": "normal", "klass": "default", "waiting": 4}],
        "fairness": [{"klass": "default", "requests": 1200, "completion_spent": 1.5, "alarms": ["completion"]}],
        "rejected": {"queue_full": 3},
    },
}

#: One recent request, as `tandem explain` asks for it.
DECISION: dict[str, Any] = {
    "request_id": "r1",
    "prompts": [
        {
            "request_id": "r1",
            "tenant": "",
            "policy": "blue-7",
            "rule": "forecast",
            "klass": "default",
            "prompt_tokens": 40,
            "answers": 1,
            "limit_tokens": 500,
            "estimate": {"mean": 120.0, "p50": 100.0, "p90": 250.0, "p99": 400.0},
            "need": {"growth_tokens": 500, "likely_tokens": 180},
            "age_s": 3.21,
            "looks": [
                {
                    "at_s": 0.25,
                    "what": "placed",
                    "worker_id": "decode-0",
                    "why": "handoff",
                    "waiting": 0,
                    "numbers": {},
                    "candidates": [
                        {
                            "worker_id": "decode-0",
                            "verdict": "fits",
                            "score": 0.51,
                            "free_after_blocks": 102.0,
                            "cached_tokens": 16,
                            "path": "remote",
                        }
                    ],
                }
            ],
            "answered": [{"tokens": 77, "finished_by": "stop"}],
        }
    ],
}


#: What it answers to orders, by their last word.
ORDERS: dict[str, dict[str, Any]] = {"drain": {"outstanding": 3}, "role": {"before": "decode"}, "r1": DECISION}


@dataclass
class FakeGateway:
    url: str
    requests: list[tuple[str, str, str, Any]] = field(default_factory=list)  # method, path, key, body
    refusal: tuple[int, str] | None = None


@contextlib.contextmanager
def fake_gateway() -> Iterator[FakeGateway]:
    gateway = FakeGateway("")

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            gateway.requests.append((self.command, self.path, self.headers.get("Authorization", ""), body))
            status, document = 200, ORDERS.get(self.path.partition("?")[0].rpartition("/")[2], STATUS)
            if gateway.refusal is not None:
                status, document = gateway.refusal[0], {"error": {"message": gateway.refusal[1]}}
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815 - names that the base class looks for

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    gateway.url = f"http://127.0.0.1:{server.server_address[1]}"
    # by default it looks every half second whether it is to stop
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
