"""The model this gateway serves, as the cluster describes it."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from gateway.cluster.cluster import Cluster
from gateway.config import GatewayConfig
from gateway.request.errors import Reason, RequestError
from gateway.text.base import Tokenizer
from gateway.text.pool import BYTE_LEVEL, TextPool
from proto.worker import WorkerInfo

log = logging.getLogger(__name__)

#: Whoever asks for readiness waits this long for a tokenizer that is being loaded.
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Served:
    """`window` is the longest prompt and answer together."""

    name: str
    window: int
    vocab_size: int
    tokenizer: Tokenizer


class ServedModel:
    """Looks the model up for every request: workers come and go while the gateway runs.

    Tokenizer and template are loaded as soon as a worker names them, so that no request waits for that.
    """

    def __init__(self, config: GatewayConfig, cluster: Cluster, texts: TextPool) -> None:
        self._config = config
        self._cluster = cluster
        self._texts = texts
        self._sources: dict[str, str] = {}
        self._loaded = ""
        self._trouble = ""
        self._loading: asyncio.Task[None] | None = None
        cluster.subscribe(self._load_early)

    @property
    def name(self) -> str:
        """Empty while no worker has ever joined and none is configured."""
        info = self._cluster.model
        return self._config.model or (info.model if info else "")

    @property
    def window(self) -> int:
        return self._cluster.window

    async def missing(self) -> str:
        """Why text cannot be served yet. Empty when it can, and without any worker, whose absence says more."""
        info = self._cluster.model
        if info is None or self._source(info) == self._loaded:
            return ""
        await asyncio.wait({self._load(info)}, timeout=_PATIENCE_S)
        if self._source(info) == self._loaded:
            return ""
        return self._trouble or "the tokenizer is being loaded"

    async def get(self, asked: str | None) -> Served:
        """Raises MODEL_NOT_FOUND for another name and NO_DECODE_WORKER while there is nobody to ask."""
        name = self.name
        if asked is not None and name and asked != name:
            raise RequestError(
                Reason.MODEL_NOT_FOUND, f"The model `{asked[:128]}` does not exist here. Use `{name}`.", param="model"
            )
        info = self._cluster.model
        window = self._cluster.window
        if info is None or not window:
            raise RequestError(
                Reason.NO_DECODE_WORKER,
                "No worker that can decode has joined yet. /readyz says what is missing.",
                retry_after_s=2.0,
            )
        return Served(name, window, info.vocab_size, await self._tokenizer(info))

    async def _tokenizer(self, info: WorkerInfo) -> Tokenizer:
        return await self._texts.tokenizer(self._source(info), vocab_size=info.vocab_size, special=info.eos_token_ids)

    def _load_early(self) -> None:
        """Called at every change in the cluster: does nothing once it has succeeded."""
        if not self._loaded and (info := self._cluster.model) is not None:
            self._load(info)

    def _load(self, info: WorkerInfo) -> "asyncio.Task[None]":
        if self._loading is None:
            self._loading = asyncio.create_task(self._rehearse(info), name="tokenizer")
        return self._loading

    async def _rehearse(self, info: WorkerInfo) -> None:
        try:
            tokenizer = await self._tokenizer(info)
            await self._texts.run(lambda: rehearse(tokenizer))
        except RequestError as error:
            if error.message != self._trouble:
                log.error("%s", error.message)
            self._trouble = error.message
        except Exception:
            log.exception("the tokenizer could not be loaded")
            self._trouble = "the tokenizer could not be loaded; the gateway's log has the details"
        else:
            self._loaded, self._trouble = self._source(info), ""
        finally:
            self._loading = None

    def _source(self, info: WorkerInfo) -> str:
        """The worker's model directory; simulated workers often have none. Asks the file system once a directory."""
        if self._config.tokenizer:
            return self._config.tokenizer
        if info.topology.device != "simulated":
            return info.model_path
        known = self._sources.get(info.model_path)
        if known is None:
            there = bool(info.model_path) and (Path(info.model_path) / "tokenizer.json").is_file()
            known = self._sources[info.model_path] = info.model_path if there else BYTE_LEVEL
        return known


def rehearse(tokenizer: Tokenizer) -> None:
    """Everything that the first request would pay for."""
    text = "Hello."
    if tokenizer.chat_template is not None:
        with contextlib.suppress(RequestError):  # a template may insist on other roles
            text = tokenizer.chat_template.render([{"role": "user", "content": text}], add_generation_prompt=True)
    tokenizer.decode(tokenizer.encode(text, add_special_tokens=False), skip_special_tokens=False)
