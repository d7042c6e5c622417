"""The stream of pieces between what the workers send and what the HTTP surface reads."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.request.answer import Piece
from gateway.request.errors import RequestError
from gateway.request.record import Record


class Answers:
    """Implements lifecycle.AnswerStream for one reader. Pieces wait here, bounded by the length of the answers.

    `whole` is called when the reader has got all of it.
    """

    def __init__(
        self, record: Record, choices: int, stop: Callable[[int], None], whole: Callable[[], None] = lambda: None
    ) -> None:
        self.record = record
        self.open_choices = set(range(choices))
        self._stop = stop
        self._whole = whole
        self._pieces: list[Piece] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: RequestError | None = None
        self._ended = False

    def push(self, piece: Piece) -> None:
        if piece.choice not in self.open_choices:
            return
        if piece.finish is not None:
            self.open_choices.discard(piece.choice)
        self._pieces.append(piece)
        self._wake()

    def end(self, error: RequestError | None = None) -> None:
        """Nothing more comes. What has been pushed is still read first."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wake()

    @property
    def complete(self) -> bool:
        """Every choice has finished or was stopped."""
        return not self.open_choices

    def __aiter__(self) -> "Answers":
        return self

    async def __anext__(self) -> tuple[Piece, ...]:
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended or self.complete:
                self._whole()
                raise StopAsyncIteration
            await self._news()
        pieces, self._pieces = tuple(self._pieces), []
        return pieces

    async def stop_choice(self, choice: int) -> None:
        if choice in self.open_choices:
            self.open_choices.discard(choice)
            self._pieces = [piece for piece in self._pieces if piece.choice != choice]
            self._stop(choice)
            self._wake()

    def _news(self) -> Awaitable[None]:
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
