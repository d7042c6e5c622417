"""What was learnt of answer lengths, in a file: a gateway that starts again need not begin with the prior."""

import asyncio
import logging
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from gateway.policy.control.controller import Controller
from gateway.whole_file import write_whole

log = logging.getLogger(__name__)


class LengthsFile:
    """Entered, it restores what the file has and saves every `every_s`; left, it saves once more.

    A file that cannot be used is a warning and a cold start, never a failed one; it is kept beside, as `*.unusable`.
    A crash leaves the file of the save before, which is whole: a new one takes its place only when it is written.
    """

    def __init__(self, file: Path, controller: Controller, every_s: float) -> None:
        self._file = file
        self._controller = controller
        self._every_s = every_s
        self._stop = asyncio.Event()
        self._saving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.restore()
        self._saving = asyncio.create_task(self._again_and_again(), name="lengths")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()  # not cancelled: a thread that is writing would go on beside the last save
        if self._saving is not None:
            await self._saving
        await self.save()

    def restore(self) -> None:
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("%s cannot be read (%s): answer lengths are learnt anew", self._file, error.strerror)
            return
        try:
            self._controller.recall(orjson.loads(data))
        except Exception as error:  # whatever is wrong with it, the gateway starts
            log.warning("%s cannot be used (%s): answer lengths are learnt anew", self._file, error or repr(error))
            self._set_aside()

    async def save(self) -> None:
        """A file that cannot be written is a warning. The disk may be slow: nobody waits for it."""
        data = orjson.dumps(self._controller.lengths.document())
        try:
            await asyncio.to_thread(write_whole, self._file, data)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._file, error.strerror)

    async def _again_and_again(self) -> None:
        while not self._stop.is_set():
            try:
                await asyncio.wait_for(self._stop.wait(), self._every_s)
            except TimeoutError:
                await self.save()

    def _set_aside(self) -> None:
        try:
            self._file.replace(self._file.with_name(f"{self._file.name}.unusable"))
        except OSError as error:
            log.warning("%s cannot be set aside: %s", self._file, error.strerror)
