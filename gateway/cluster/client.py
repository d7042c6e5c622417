"""The calls that a gateway makes on one worker, in domain nouns and three kinds of failure."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

import grpc
import grpc.aio

from proto import services
from proto.fault import Fault, FaultError, FaultKind
from proto.method import Method
from proto.reservation import Refusal, ReleaseReservation, RenewReservation, Reservation, ReserveRequest
from proto.ticket import ReleaseTicket
from proto.work import PrefillDone, Work
from proto.worker import Role, RoleChange, StepLimit, StepReport, WarmResult, WorkerInfo, WorkerState

Q = TypeVar("Q")
R = TypeVar("R")

#: No call came through: the process, its host or the network between is gone.
_LOST_CODES = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})


class WorkerLostError(Exception):
    """The connection to a worker is gone and with it everything that ran over it."""


def failure(error: grpc.aio.AioRpcError) -> Exception:
    """What a failed call means: a lost worker, a missed deadline, or a fault of its own telling."""
    details = error.details() or error.code().name
    if error.code() in _LOST_CODES:
        return WorkerLostError(details)
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimeoutError(details)
    kind, _, message = details.partition(": ")
    try:
        return FaultError(Fault(FaultKind(kind), message))
    except ValueError:
        return FaultError(Fault(FaultKind.INTERNAL, f"{error.code().name}: {details}"))


class WorkerClient:
    """Every method raises WorkerLostError, TimeoutError or FaultError, and is cancelled with its caller."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def close(self) -> None:
        await self._channel.close()

    async def describe(self, timeout_s: float) -> WorkerInfo:
        return await self._call(services.DESCRIBE, None, timeout_s)

    async def watch(self, interval_s: float) -> AsyncIterator[WorkerState]:
        try:
            async for state in services.WATCH.encoded.server_stream(self._channel)(services.WATCH.encode(interval_s)):
                yield services.WATCH.decode_reply(state)
        except grpc.aio.AioRpcError as error:
            raise failure(error) from error

    def attach(self) -> grpc.aio.StreamStreamCall[bytes, bytes]:
        return services.ATTACH.encoded.two_way(self._channel)()

    async def warm(self, peer: WorkerInfo, timeout_s: float) -> WarmResult:
        return await self._call(services.WARM, peer, timeout_s)

    async def drain(self, resume: bool, timeout_s: float) -> int:
        return await self._call(services.DRAIN, resume, timeout_s)

    async def set_role(self, role: Role, timeout_s: float) -> Role:
        """Returns the role that the worker had before."""
        before = await self._call(services.SET_ROLE, RoleChange(role), timeout_s)
        return before.role

    async def limit_step(self, limit: StepLimit, timeout_s: float) -> StepReport:
        return await self._call(services.LIMIT_STEP, limit, timeout_s)

    async def reserve(self, request: ReserveRequest, timeout_s: float) -> Reservation | Refusal:
        return await self._call(services.RESERVE, request, timeout_s)

    async def renew_reservation(self, renew: RenewReservation, timeout_s: float) -> bool:
        return await self._call(services.RENEW_RESERVATION, renew, timeout_s)

    async def release_reservation(self, release: ReleaseReservation, timeout_s: float) -> bool:
        return await self._call(services.RELEASE_RESERVATION, release, timeout_s)

    async def prefill(self, work: Work, timeout_s: float) -> PrefillDone:
        reply = await self._call(services.PREFILL, work, timeout_s)
        if isinstance(reply, Fault):
            raise FaultError(reply)
        return reply

    async def begin(self, work: Work) -> AsyncGenerator[PrefillDone]:
        """A prefill leg in parts, for as long as its caller reads it; deadlines are the caller's."""
        try:
            call = services.BEGIN.encoded.server_stream(self._channel)(services.BEGIN.encode(work))
        except grpc.aio.UsageError as error:  # the channel has been closed under the caller
            raise WorkerLostError(str(error)) from error
        try:
            async for data in call:
                reply = services.BEGIN.understood(data)
                if isinstance(reply, Fault):
                    raise FaultError(reply)
                yield reply
        except grpc.aio.AioRpcError as error:
            raise failure(error) from error
        except asyncio.CancelledError:
            raise_unless_ours()
            raise
        finally:
            call.cancel()

    async def release_ticket(self, release: ReleaseTicket, timeout_s: float) -> bool:
        return await self._call(services.RELEASE_TICKET, release, timeout_s)

    async def _call(self, method: Method[Q, R], request: Q, timeout_s: float) -> R:
        try:
            return await method.ask(self._channel, request, timeout_s)
        except grpc.aio.AioRpcError as error:
            raise failure(error) from error
        except grpc.aio.UsageError as error:  # the channel has been closed under the caller
            raise WorkerLostError(str(error)) from error
        except asyncio.CancelledError:
            raise_unless_ours()
            raise


def raise_unless_ours() -> None:
    """Closing the channel cancels its calls; that is not the caller being cancelled, but a lost worker."""
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        raise WorkerLostError("the connection was closed") from None
