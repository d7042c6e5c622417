"""Tells gateways where this worker listens, again and again: a restarted gateway remembers nobody."""

import asyncio
import logging
import random

import grpc
import grpc.aio

from proto.channel import TlsFiles, open_channel
from proto.fault import FaultError
from proto.join import JoinReply, JoinRequest
from proto.services import JOIN

log = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.25
MAX_BACKOFF_S = 5.0
CALL_TIMEOUT_S = 5.0
#: A gateway may ask for other intervals, within reason.
INTERVALS_S = (0.1, 60.0)


async def keep_joining(gateway: str, request: JoinRequest, tls: TlsFiles | None = None) -> None:
    """Announces to one gateway until it is cancelled; failures are retried with backoff."""
    backoff_s, said = FIRST_BACKOFF_S, ""
    async with open_channel(gateway, tls) as channel:
        while True:
            outcome, wait_s = "", 0.0
            try:
                reply: JoinReply = await JOIN.ask(channel, request, CALL_TIMEOUT_S)
            except (grpc.aio.AioRpcError, FaultError) as error:
                outcome = (
                    error.details() or error.code().name if isinstance(error, grpc.aio.AioRpcError) else str(error)
                )
            else:
                outcome = "" if reply.accepted else f"refused: {reply.reason}"
                wait_s = min(INTERVALS_S[1], max(INTERVALS_S[0], reply.next_join_s))
            if outcome != said:
                said = outcome
                log.log(logging.WARNING if outcome else logging.INFO, "join %s: %s", gateway, outcome or "accepted")
            if outcome:
                # Many workers meet one gateway that comes back: they should not meet it all at once.
                wait_s = max(wait_s, backoff_s * random.uniform(0.7, 1.3))
                backoff_s = min(MAX_BACKOFF_S, backoff_s * 2)
            else:
                backoff_s = FIRST_BACKOFF_S
            await asyncio.sleep(wait_s)
