"""Warming a pair: compatibility, hand-shake and a first measured read, before traffic needs them."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from engine.config import Link
from proto.worker import WarmResult, WorkerInfo
from transfer.compatibility import incompatibilities
from transfer.links import LinkError, Transport, choose

_POLL_S = 0.02
_DEADLINE_S = 30.0


async def warm_pair(
    own: WorkerInfo, peer: WorkerInfo, link: Link, step: Callable[[dict[str, Any]], Awaitable[list[Any]]]
) -> WarmResult:
    """`step` moves the warm-up of every rank on by a little; it is called until all have ended."""
    started_s = time.perf_counter()
    try:
        transport = choose(own.topology, peer.topology, None if link is Link.AUTO else Transport(link))
        params = json.loads(peer.peer_params)
    except (LinkError, ValueError) as error:
        return WarmResult(False, "", 0.0, 0.0, str(error))
    if reasons := incompatibilities(peer, own):
        return WarmResult(False, str(transport), 0.0, 0.0, "; ".join(reasons))
    while True:
        ranks = await step(params)
        failed = [rank["detail"] for rank in ranks if rank["state"] == "failed"]
        if failed:
            return WarmResult(False, str(transport), time.perf_counter() - started_s, 0.0, failed[0])
        if all(rank["state"] == "ready" for rank in ranks):
            break
        if time.perf_counter() - started_s > _DEADLINE_S:
            return WarmResult(False, str(transport), time.perf_counter() - started_s, 0.0, "the hand-shake timed out")
        await asyncio.sleep(_POLL_S)
    return WarmResult(
        ok=True,
        transport=str(transport),
        handshake_s=max(rank["handshake_s"] for rank in ranks),
        bytes_per_s=sum(rank["bytes_per_s"] for rank in ranks),  # ranks read side by side
        detail=next((rank["detail"] for rank in ranks if rank["detail"]), ""),
    )
