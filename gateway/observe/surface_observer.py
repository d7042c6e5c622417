"""What the HTTP surface tells whoever watches it, beside what the lifecycle tells."""

from typing import Protocol

from gateway.request.observer import Observer, SilentObserver
from gateway.request.record import Record


class SurfaceObserver(Observer, Protocol):
    """Called synchronously on the event loop: implementations must be quick and must not raise."""

    def responded(self, route: str, status: int) -> None:
        """A response's status line went out. `route` is the pattern, not the path."""
        ...

    def stream_broken(self, record: Record) -> None:
        """A stream that had begun ended with an error event and without [DONE] (B-23)."""
        ...

    def tokenized(self, tokens: int, seconds: float) -> None:
        """Prompts of one request were rendered and tokenized, waiting for a thread included."""
        ...

    def tokens_shown(self, count: int) -> None:
        """Answer tokens went to a client. Called for every write of a stream."""
        ...


class SilentSurfaceObserver(SilentObserver):
    """Watches nothing; for tests."""

    def responded(self, route: str, status: int) -> None:
        pass

    def stream_broken(self, record: Record) -> None:
        pass

    def tokenized(self, tokens: int, seconds: float) -> None:
        pass

    def tokens_shown(self, count: int) -> None:
        pass
