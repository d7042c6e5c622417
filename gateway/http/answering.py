"""Answers one generation request: as a stream of events or as one document."""

import asyncio
import logging
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.http.body import parsed
from gateway.http.connection import BrokenStreamError, while_connected
from gateway.http.disclosure import disclosed
from gateway.http.ending import end_early
from gateway.http.errors import internal
from gateway.http.exchange import Exchange, of
from gateway.http.form import Collected, Usage
from gateway.http.intake import Share
from gateway.http.prepare import Prepared, prepare
from gateway.http.schema import ChatRequest, CompletionRequest
from gateway.http.surface import Surface
from gateway.http.timings import breakdown, route_headers
from gateway.http.writer import Writer
from gateway.request.answer import Piece
from gateway.request.errors import Reason, RequestError
from gateway.request.lifecycle import AnswerStream
from gateway.request.record import Record

log = logging.getLogger(__name__)


class Answering(Response):
    """A response class of its own, because the status line waits for the first tokens (B-24).

    It also watches the client all the while, streaming or not.
    """

    def __init__(
        self, surface: Surface, form: type[ChatRequest] | type[CompletionRequest], data: bytes, share: Share
    ) -> None:
        super().__init__()
        self._share = share
        self._surface = surface
        self._form = form
        self._data = data
        self._handed_over = False  # from then on the lifecycle ends the record, even after we have left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = of(scope)
        writer = Writer(send, exchange.direct)
        with self._share:
            await while_connected(receive, self._serve(exchange, writer), lambda: writer.finished)

    async def _serve(self, exchange: Exchange, writer: Writer) -> None:
        surface = self._surface
        name, started_s = surface.served.name, exchange.started_s
        record = Record(
            exchange.request_id,
            name,
            exchange.tenant,
            0,
            0,
            started_s,
            client_id=exchange.client_id,
            trace=exchange.trace,
            policy=surface.policy,
        )
        try:
            error = await self._attempt(exchange, record, writer)
        except asyncio.CancelledError:
            if not self._handed_over:
                end_early(surface.observer, record, None, surface.clock())
            raise
        finally:
            await writer.quiet()
        if error is None:
            return
        if not self._handed_over:
            end_early(surface.observer, record, error, surface.clock())
        surface.ended_in(error, exchange.request_id, record.failed_phase or record.phase)
        exchange.policy = record.policy  # by which it was decided; another may have come into force since it arrived
        shown = disclosed(error, exchange)
        if not writer.started:
            await writer.error(shown)
            return
        surface.observer.stream_broken(record)
        await writer.broken(shown)
        raise BrokenStreamError(error.message)

    async def _attempt(self, exchange: Exchange, record: Record, writer: Writer) -> RequestError | None:
        """By the time this returns, the lifecycle has released everything."""
        try:
            prepared = await self._prepare(exchange, record)
            self._handed_over = True
            async with self._surface.lifecycle.open(prepared.intent, record) as answer:
                exchange.policy = record.policy
                run = Run(self._surface, exchange, record, prepared, writer)
                await (run.stream(answer) if prepared.stream else run.collect(answer))
        except RequestError as error:
            return error
        except Exception as error:
            log.exception("request %s failed", exchange.request_id)
            return internal(error)
        return None

    async def _prepare(self, exchange: Exchange, record: Record) -> Prepared:
        body = await parsed(self._data, self._form, self._surface.texts)
        self._data = b""
        prepared = await prepare(self._surface, exchange, body)
        self._share.give_back()
        record.prompt_tokens = sum(map(len, prepared.intent.prompts))
        record.choices = prepared.intent.choices
        return prepared


class Run:
    """One answer under way."""

    def __init__(
        self, surface: Surface, exchange: Exchange, record: Record, prepared: Prepared, writer: Writer
    ) -> None:
        self._surface = surface
        self._exchange = exchange
        self._record = record
        self._prepared = prepared
        self._writer = writer
        self._choices = prepared.choices()
        self._cached = [0] * len(self._choices)
        self._fresh = 0

    async def stream(self, answer: AnswerStream) -> None:
        prepared, writer = self._prepared, self._writer
        async for batch in answer:
            if not writer.started:
                await self._start()
            events: list[bytes] = []
            stopped: list[int] = []
            for piece in batch:
                self._add_events(piece, events, stopped)
            if data := b"".join(events):
                await writer.events(data)
            self._count()
            for index in stopped:
                await answer.stop_choice(index)
        self._settle()
        usage = self._usage()
        await writer.end_events(prepared.form.closing(usage, self._extra()) if prepared.usage else b"")

    def _add_events(self, piece: Piece, events: list[bytes], stopped: list[int]) -> None:
        choice = self._choices[piece.choice]
        if choice.finished:
            return
        form = self._prepared.form
        if piece.first:
            self._cached[piece.choice] = piece.cached_tokens
        shown = choice.take(piece)
        if not choice.opened:
            choice.opened = True
            events.append(form.opening(choice.index, piece.prompt_logprobs))
        self._fresh += len(shown.tokens)
        events.append(form.chunk(choice.index, shown, self._usage() if self._prepared.running_usage else None))
        if choice.stopped_by_text:
            stopped.append(choice.index)

    async def _start(self) -> None:
        config = self._surface.config
        task = asyncio.current_task()
        assert task is not None
        await self._writer.start_events(
            route_headers(self._record),
            beat_s=config.heartbeat_s,
            write_s=config.deadlines.write_s,
            stalled=task.cancel,
        )

    async def collect(self, answer: AnswerStream) -> None:
        collected = [Collected(choice.index) for choice in self._choices]
        async for batch in answer:
            for piece in batch:
                choice = self._choices[piece.choice]
                if choice.finished:
                    continue
                if piece.first:
                    self._cached[piece.choice] = piece.cached_tokens
                    collected[piece.choice].prompt_logprobs = piece.prompt_logprobs
                shown = choice.take(piece)
                self._fresh += len(shown.tokens)
                collected[piece.choice].shown.append(shown)
                if choice.stopped_by_text:
                    await answer.stop_choice(choice.index)
            self._count()
        self._settle()
        body = self._prepared.form.document(collected, self._usage(), self._extra())
        await self._writer.document(body, route_headers(self._record))

    def _count(self) -> None:
        fresh, self._fresh = self._fresh, 0
        self._surface.observer.tokens_shown(fresh)

    def _settle(self) -> None:
        """Every choice must have said how it ended; what the client is charged is what it was shown."""
        unfinished = [choice.index for choice in self._choices if not choice.finished]
        if unfinished:
            raise RequestError(Reason.DECODE_FAILED, f"The engine ended without finishing choice {unfinished[0]}.")
        self._record.completion_tokens = sum(choice.count for choice in self._choices)

    def _usage(self) -> Usage:
        n = self._prepared.intent.n
        return Usage(
            prompt_tokens=self._record.prompt_tokens,
            completion_tokens=sum([choice.count for choice in self._choices]),
            cached_tokens=sum(self._cached[::n]),
            reasoning_tokens=sum([choice.reasoning_tokens for choice in self._choices])
            if self._prepared.reasoning
            else None,
        )

    def _extra(self) -> dict[str, Any] | None:
        if not self._exchange.timings:
            return None
        return {"tandem": breakdown(self._record, self._surface.clock(), names=self._exchange.cleared)}
