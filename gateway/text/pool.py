"""Threads for everything that may take long with text, so that the event loop never does (B-58)."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from gateway.request.errors import Reason, RequestError
from gateway.text.base import Tokenizer
from gateway.text.byte_level import ByteLevelTokenizer
from gateway.text.files import FileTokenizer, TokenizerError

Result = TypeVar("Result")

#: The name that asks for the built-in tokenizer.
BYTE_LEVEL = "byte-level"

#: Characters that are rendered and tokenized within a fraction of a millisecond.
SMALL = 1024


class TextPool:
    """Runs text work in threads and keeps loaded tokenizers; a failed load is kept too, until the file changes."""

    def __init__(self, threads: int, timeout_s: float) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="text")
        self._timeout_s = timeout_s
        self._loaded: dict[tuple[str, int], Tokenizer] = {}
        self._failed: dict[str, tuple[int, TokenizerError]] = {}
        self._loading: dict[tuple[str, int], asyncio.Future[Tokenizer]] = {}

    async def run(self, work: Callable[[], Result], *, size: int | None = None) -> Result:
        """Waits at most the configured time; a thread that is already busy with it runs on unheeded.

        `size` in characters, where it is known to bound the work: what is small is done at once, because two
        changes of thread take longer.
        """
        if size is not None and size <= SMALL:
            return work()
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await future
        except TimeoutError:
            raise RequestError(
                Reason.REQUEST_TIMEOUT,
                f"Preparing the prompt took longer than {self._timeout_s:g} s (deadlines.tokenize_s).",
                param="prompt",
            ) from None

    async def tokenizer(self, name: str, *, vocab_size: int = 0, special: Iterable[int] = ()) -> Tokenizer:
        """`name` is a model directory or BYTE_LEVEL. Raises RequestError when it cannot be loaded."""
        key = (name, vocab_size if name == BYTE_LEVEL else 0)
        found = self._loaded.get(key)
        if found is not None:
            return found
        try:
            return await self._load_once(key, tuple(special))
        except TokenizerError as error:
            raise RequestError(
                Reason.INTERNAL,
                f"No tokenizer: {error}. Set `tokenizer` in the gateway's configuration to a directory with "
                "tokenizer.json.",
            ) from error

    async def _load_once(self, key: tuple[str, int], special: tuple[int, ...]) -> Tokenizer:
        name = key[0]
        version, failure = self._failed.get(name, (-1, None))
        if failure is not None and version == _version(name):
            raise failure
        loading = self._loading.get(key)
        if loading is None:
            loop = asyncio.get_running_loop()
            loading = loop.run_in_executor(self._executor, _load, name, key[1], special)
            self._loading[key] = loading
            loading.add_done_callback(lambda done: self._keep(key, _version(name), done))
        return await asyncio.shield(loading)

    def _keep(self, key: tuple[str, int], version: int, done: "asyncio.Future[Tokenizer]") -> None:
        del self._loading[key]
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._loaded[key] = done.result()
        elif isinstance(error, TokenizerError):
            self._failed[key[0]] = (version, error)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def _version(directory: str) -> int:
    """Changes when the tokenizer file does, so that a repaired directory is tried again."""
    try:
        return (Path(directory) / "tokenizer.json").stat().st_mtime_ns
    except OSError:
        return 0


def _load(name: str, vocab_size: int, special: tuple[int, ...]) -> Tokenizer:
    return ByteLevelTokenizer(vocab_size, special) if name == BYTE_LEVEL else FileTokenizer(Path(name))
