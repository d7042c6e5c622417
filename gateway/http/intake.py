"""How many bytes of bodies the gateway holds, from their arrival until their prompts are tokens."""

from types import TracebackType
from typing import Self

from gateway.request.errors import Reason, RequestError


class Intake:
    """Clients that send slowly, or faster than prompts are prepared, must not fill the memory together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def share(self) -> "Share":
        return Share(self)


class Share:
    """One body's part. Leaving the context gives it back; giving it back again does nothing."""

    __slots__ = ("_intake", "_size")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._size = 0

    def add(self, size: int) -> None:
        """What has arrived is counted, not what was announced: announcing costs a client nothing."""
        intake = self._intake
        if intake.held + size > intake.limit:
            raise RequestError(
                Reason.QUEUE_FULL,
                f"The gateway holds {intake.held} bytes of requests that are arriving or being prepared; at most "
                f"{intake.limit} at a time (max_bodies_bytes). Try again later.",
                retry_after_s=1.0,
                numbers={"bytes_held": intake.held, "max_bodies_bytes": intake.limit},
            )
        intake.held += size
        self._size += size

    def give_back(self) -> None:
        self._intake.held -= self._size
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()
