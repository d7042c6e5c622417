"""What is checked and found out before a run, so that troubles are one line instead of a thousand failures."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from loadgen.client.conditions import conditions_of, gpus_of
from loadgen.client.prompts import PromptWriter
from loadgen.client.target import Dialect, Output, Prompts, Surface, Target, body_of, get, post
from loadgen.client.timeline import Timeline
from loadgen.client.vocabulary import LocalTokenizer, Vocabulary, candidates, confirm, local_vocabulary, probe_text
from loadgen.client.wire import ConnectionLostError, Pool
from loadgen.demand import Demand
from loadgen.failure import LoadgenError

_PROBE_TOKENS = 24

#: Tokenizes a text at the target and notes the result; False when the target cannot.
Ask = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Ready:
    """A target that answered, and how to write to it. `gpus`: behind it by its own word, 0 where it has none."""

    target: Target
    vocabulary: Vocabulary
    models: tuple[dict[str, Any], ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    gpus: int = 0


class _Plain:
    """Collects a plain response."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.data = bytearray()

    def head(self, status: int, headers: dict[str, str], at_s: float) -> None:
        self.status, self.headers = status, headers

    def body(self, data: bytes, at_s: float) -> None:
        self.data += data

    def complete(self, at_s: float) -> None:
        pass

    def json(self) -> Any:
        try:
            return orjson.loads(bytes(self.data))
        except orjson.JSONDecodeError:
            return None


class Preflight:
    """One conversation with a target before the run."""

    def __init__(self, target: Target, tokenizer: LocalTokenizer | None, timeout_s: float = 60.0) -> None:
        self._target = target
        self._tokenizer = tokenizer
        self._timeout_s = timeout_s
        self._pool = Pool(target.endpoint)

    async def run(self) -> Ready:
        try:
            return await self._run()
        finally:
            self._pool.close()

    async def _run(self) -> Ready:
        models, version = await self._models()
        target = replace(self._target, model=_choose(self._target, models))
        vocabulary, notes = await self._vocabulary(target)
        if target.prompts is Prompts.IDS and not vocabulary.ids:
            raise LoadgenError("prompts: token ids are not known; give --tokenizer or a target with /tokenize")
        target, vocabulary, more = await self._probe(target, vocabulary)
        return Ready(target, vocabulary, tuple(models), version, (*notes, *more), await self._gpus())

    async def _call(self, request: bytes) -> _Plain:
        answer = _Plain()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._pool.exchange(request, answer)
        except ConnectionLostError as error:
            raise LoadgenError(f"target {self._target.base} is not reachable: {error}") from None
        except TimeoutError:
            raise LoadgenError(f"target {self._target.base} did not answer within {self._timeout_s:g} s") from None
        return answer

    async def _models(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        answer = await self._call(get(self._target, f"{self._target.prefix}/v1/models"))
        if answer.status in (401, 403):
            raise LoadgenError(f"target {self._target.base} answers {answer.status}: wrong or missing --api-key")
        versions = {"server": answer.headers["server"]} if "server" in answer.headers else {}
        data = answer.json()
        rows = data.get("data") if isinstance(data, dict) else None
        if answer.status != 200 or not isinstance(rows, list):
            if self._target.model:
                return [], versions
            raise LoadgenError(
                f"target {self._target.base}: /v1/models answers {answer.status}; say which --model to ask for"
            )
        version = await self._call(get(self._target, f"{self._target.prefix}/version"))
        found = version.json()
        if version.status == 200 and isinstance(found, dict):
            versions |= {str(k): str(v) for k, v in found.items() if isinstance(v, str | int | float)}
        versions |= conditions_of(await self._status())
        return [m for m in rows if isinstance(m, dict)], versions

    async def _status(self) -> Any:
        """tandem's own document; None where there is none."""
        status = await self._call(get(self._target, f"{self._target.prefix}/tandem/v1/status"))
        return status.json() if status.status == 200 else None

    async def _gpus(self) -> int:
        return gpus_of(await self._status())

    async def _vocabulary(self, target: Target) -> tuple[Vocabulary, list[str]]:
        if self._tokenizer is not None:
            tokenizer = self._tokenizer
            return await asyncio.to_thread(local_vocabulary, tokenizer), ["prompt lengths by the local tokenizer"]
        counts: dict[str, list[int]] = {}

        async def ask(text: str) -> bool:
            body = {"model": target.model, "prompt": text}
            answer = await self._call(post(target, f"{target.prefix}/tokenize", body))
            data = answer.json()
            tokens = data.get("tokens") if isinstance(data, dict) else None
            if answer.status != 200 or not isinstance(tokens, list):
                return False
            counts[text] = tokens
            return True

        words = candidates()
        if not await ask(words[0]):
            return Vocabulary(words), ["the target has no /tokenize: prompt lengths rest on one token a common word"]
        confirmed = await _confirm_remotely(ask, counts, words)
        joined = probe_text(confirmed)
        await ask(joined)
        ids = tuple(counts[joined][-len(confirmed.words) :])
        return replace(confirmed, ids=ids), ["prompt lengths by the target's /tokenize"]

    async def _probe(self, target: Target, vocabulary: Vocabulary) -> tuple[Target, Vocabulary, list[str]]:
        """Sends one short request in the richest dialect that the target takes."""
        refusal = ""
        for dialect in _dialects(target):
            tried = replace(target, dialect=dialect)
            timeline = await self._stream(tried, vocabulary)
            if timeline.status in (401, 403):
                raise LoadgenError(f"target {target.base} answers {timeline.status}: wrong or missing --api-key")
            if timeline.status == 404:
                raise LoadgenError(f"target {target.base}: {_message(timeline)} (404 for {target.path})")
            if timeline.status == 200 and timeline.error is None:
                vocabulary, notes = _calibrated(tried, vocabulary, timeline)
                return tried, vocabulary, [*notes, *_lacking(target, dialect)]
            refusal = f"{timeline.status}: {_message(timeline)}"
            if timeline.status not in (400, 422):
                break
        raise LoadgenError(f"target {target.base} refuses a probe request ({refusal})")

    async def _stream(self, target: Target, vocabulary: Vocabulary) -> Timeline:
        timeline = Timeline()
        writer = PromptWriter(vocabulary, salt=0x5EED)
        demand = Demand(_PROBE_TOKENS + vocabulary.overhead, 2)
        request = post(target, target.path, body_of(target, writer, demand, 0))
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._pool.exchange(request, timeline)
        except ConnectionLostError as error:
            raise LoadgenError(f"target {target.base} broke a probe request off: {error}") from None
        except TimeoutError:
            raise LoadgenError(f"target {target.base} did not end a probe within {self._timeout_s:g} s") from None
        timeline.end(0.0)
        return timeline


def _choose(target: Target, models: Sequence[Mapping[str, Any]]) -> str:
    names = [str(m.get("id")) for m in models]
    if not target.model:
        if not names:
            raise LoadgenError(f"target {target.base} serves no model")
        return names[0]
    if names and target.model not in names:
        raise LoadgenError(f"target {target.base} has no model {target.model!r}; it serves {', '.join(names)}")
    return target.model


async def _confirm_remotely(ask: Ask, counts: Mapping[str, Sequence[int]], words: Sequence[str]) -> Vocabulary:
    """Runs the pure `confirm` on counts asked of the target, fetching each as it is missed."""

    class Missing(Exception):  # noqa: N818
        pass

    def count(text: str) -> int:
        if text not in counts:
            raise Missing(text)
        return len(counts[text])

    while True:
        try:
            return confirm(count, words)
        except Missing as missing:
            if not await ask(missing.args[0]):
                raise LoadgenError("the target's /tokenize stopped answering") from None


def _dialects(target: Target) -> list[Dialect]:
    """From rich to plain."""
    counting = [Dialect(), Dialect(continuous_usage=False)]
    if target.output is Output.CAP:
        return counting
    return [*counting, *(Dialect(c, i, False) for i in (True, False) for c in (True, False))]


def _lacking(target: Target, dialect: Dialect) -> list[str]:
    notes = []
    if not dialect.continuous_usage:
        notes.append("the target gives no running token counts: chunks of several tokens are split by text length")
    if target.output is Output.EXACT and not dialect.ignore_eos:
        notes.append("the target refuses ignore_eos: outputs may be shorter than planned")
    return notes


def _calibrated(target: Target, vocabulary: Vocabulary, timeline: Timeline) -> tuple[Vocabulary, list[str]]:
    """The target's own count of the probe tells what its template adds."""
    counted = int(timeline.usage.get("prompt_tokens") or 0)
    if not counted:
        return vocabulary, ["the target reports no prompt_tokens: prompt lengths cannot be checked"]
    if target.surface is Surface.CHAT:
        sent = _PROBE_TOKENS + vocabulary.overhead
        return replace(vocabulary, chat_overhead=counted - sent), []
    if target.prompts is Prompts.IDS:
        return vocabulary, []
    extra = counted - _PROBE_TOKENS - vocabulary.overhead
    return replace(vocabulary, overhead=vocabulary.overhead + extra), []


def _message(timeline: Timeline) -> str:
    error = timeline.error or {}
    return str(error.get("message") or error.get("code") or "no reason given").splitlines()[0][:200]
