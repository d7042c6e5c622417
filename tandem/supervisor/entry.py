"""What a child of `tandem up` runs: `python -m tandem.supervisor.entry gateway|worker PARENT_PID NAME`.

The configuration is one JSON document on standard input.
"""

import asyncio
import json
import sys
from typing import Any

from tandem.process import die_with_parent, log_to_stderr, serve
from tandem.supervisor.child import Kind


def main(kind: Kind, document: dict[str, Any]) -> None:
    if kind is Kind.GATEWAY:
        _gateway(document)
    else:
        _worker(document)


def _gateway(document: dict[str, Any]) -> None:
    from gateway.app import run_gateway
    from gateway.config import GatewayConfig

    config = GatewayConfig.model_validate(document)

    async def run(stop: asyncio.Event) -> None:
        await run_gateway(config, stop)

    serve(run)


def _worker(document: dict[str, Any]) -> None:
    from tandem.worker.config import WorkerConfig
    from tandem.worker.process import run_worker

    config = WorkerConfig.model_validate(document)

    async def run(stop: asyncio.Event) -> None:
        await run_worker(config, stop)

    serve(run)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    log_to_stderr()
    main(Kind(sys.argv[1]), json.load(sys.stdin))
