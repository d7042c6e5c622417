"""Section 3: bytes on the wire, honest ends, and connections that are kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cluster.states import WorkerStatus
from gateway.config import GatewayConfig
from gateway.http.server import KEEP_ALIVE_S
from loadgen.client.sse import EventReader
from loadgen.client.wire import ConnectionLostError, Endpoint, Pool
from tests.conformance.replies import COMPLETION, FORMS, STREAMS, Reply
from tests.conformance.stack import CARRY, REPLAY, fault, script, shown, text_of, truth, whole, words
from tests.examples import examples, first
from tests.gateway.fleet import PAIR, config, until
from tests.waiting import HANG_S

LENGTHS = (CARRY, REPLAY)
FRAMINGS: dict[str, dict[str, Any] | None] = {
    "one step a frame": None,
    "one output a frame": {"kind": "framing", "outputs_per_frame": 1},
    "two steps a frame": {"kind": "framing", "steps_per_frame": 2},
    "seven steps a frame": {"kind": "framing", "steps_per_frame": 7},
}
QUICK = "two steps a frame"


@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in FRAMINGS if name != QUICK)]
)
async def test_b20_text_is_the_same_whatever_frames_its_tokens_came_in(name: str) -> None:
    """The answers are full of characters of two, three and four bytes, each byte a token."""
    framing, seen = FRAMINGS[name], set[str]()
    async with whole(PAIR, scripts={"d0": script(framing)} if framing else {}) as one:
        for at, form in enumerate(FORMS):
            for length in LENGTHS:
                for n in (1, 2):
                    text = text_of(length, form, seed=at)
                    reply = await one.post(form, text, n=n, max_tokens=120, ignore_eos=True)
                    told = shown(truth(form, text, 120, ignore_eos=True))
                    seen |= set(told)
                    for choice in range(n):
                        assert reply.text(choice) == told
                        # Only an answer that was cut off inside a character ends in a replacement.
                        assert all("\ufffd" not in piece for piece in reply.pieces(choice)[:-2])
        assert set("é漢😀") <= seen
        await one.settled()


EVENTS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1), min_size=1, max_size=6)


@examples(80)
@given(EVENTS, st.data())
def test_b21_events_are_the_same_for_any_split_line_end_and_spelling(texts: list[str], data: st.DataObject) -> None:
    """The load generator reads event streams; the gateway itself reads none, for its workers speak gRPC."""
    end = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    wire = b""
    for text in texts:
        if data.draw(st.booleans()):
            wire += b": a comment" + end + end
        # Without the space the text must not begin with one, for that would be taken for it.
        space = b"" if not text.startswith(" ") and data.draw(st.booleans()) else b" "
        wire += b"data:" + space + text.encode() + end + end
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=12)))
    reader, found = EventReader(), []
    for begin, stop in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        found += reader.feed(wire[begin:stop])
    assert [event.decode() for event in [*found, *reader.end()]] == texts


@pytest.mark.slow
async def test_b21_the_gateways_own_streams_survive_a_cut_at_every_byte() -> None:
    async with whole(PAIR) as one:
        for form in STREAMS:
            reply = await one.post(form, text_of(CARRY, form), max_tokens=12, ignore_eos=True)
            expected = [b"[DONE]" if event is None else event for event in reply.events]
            for at in range(len(reply.raw)):
                reader = EventReader()
                events = reader.feed(reply.raw[:at]) + reader.feed(reply.raw[at:])
                assert [event if event == b"[DONE]" else orjson.loads(event) for event in events] == expected


def broken(reply: Reply, code: str) -> bool:
    """An error event last, no [DONE], and a connection that was cut."""
    return reply.broken and not reply.done and None not in reply.events and reply.events[-1]["error"]["code"] == code


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("n", [1, 2])
async def test_b23_a_decode_worker_that_dies_after_ten_tokens(form: Any, n: int) -> None:
    death = fault("die", "pull", after_tokens=10)
    async with whole(PAIR, profile="toy", scripts={"d0": script(death)}) as one:
        reply = await one.post(form, text_of(CARRY, form), n=n, max_tokens=100, ignore_eos=True)
        told = truth(form, text_of(CARRY, form), 100, ignore_eos=True)
        if form.stream:
            assert broken(reply, "decode_failed")
            assert reply.status == 200
            assert 8 <= len(reply.tokens()) <= 12
            assert reply.tokens() == told[: len(reply.tokens())]
            assert reply.finish() is None
        else:
            assert (reply.status, reply.error["code"]) == (502, "decode_failed")
        assert one.metric("tandem_stream_broken_total") == form.stream
        await one.status("d0", WorkerStatus.EJECTED, WorkerStatus.GONE)
        refused = await one.post(form, text_of(CARRY, form))
        assert refused.status == 503


async def test_b23_a_decode_leg_that_never_begins_after_the_first_token_was_shown() -> None:
    """The carried token is the client's; what follows is tried once more, and then the stream is broken, not ended."""
    settings = config(health={"failures_to_eject": 1000})
    refusal = fault("refuse", "pull", fault="internal")
    async with whole(PAIR, settings=settings, scripts={"d0": script(refusal)}) as one:
        for form in FORMS:
            reply = await one.post(form, text_of(CARRY, form))
            if form.stream:
                assert broken(reply, "decode_failed")
                shown_tokens = reply.tokens()  # the retry's prefill leg has a token to show, too
                assert 1 <= len(shown_tokens) <= 2
                assert shown_tokens == truth(form, text_of(CARRY, form))[: len(shown_tokens)]
            else:
                assert (reply.status, reply.error["code"]) == (502, "decode_failed")
        assert one.metric("tandem_stream_broken_total") == 2
        await one.settled()


FIRST: dict[str, tuple[dict[str, Any], int, str]] = {
    "bad request": (fault("refuse", "pull", fault="invalid_request"), 400, "invalid_request"),
    "overloaded": (fault("refuse", "pull", fault="overloaded"), 503, "no_decode_worker"),
    "broken": (fault("refuse", "pull", fault="internal"), 502, "decode_failed"),
    "fails before its first token": (fault("fail", "pull", after_tokens=0), 502, "decode_failed"),
}


@pytest.mark.parametrize("name", first(2, FIRST))
async def test_b24_what_decode_says_before_any_token_is_the_status(name: str) -> None:
    rule, status, code = FIRST[name]
    settings = config(health={"failures_to_eject": 1000})
    async with whole(PAIR, settings=settings, scripts={"d0": script(rule)}) as one:
        for form in FORMS:
            for n in (1, 2):
                reply = await one.post(form, text_of(REPLAY, form), n=n)
                assert (reply.status, reply.error["code"]) == (status, code)
                assert reply.headers["content-type"] == "application/json"
                assert ("retry-after" in reply.headers) == (status == 503)
        assert one.metric("tandem_stream_broken_total") == 0
        await one.settled()


async def test_b24_a_full_queue_is_429_before_anything_else() -> None:
    settings = config(admission={"max_queued": 0})
    stays = {"d0": script(fault("hang", "pull", phase="decode", after_tokens=3))}
    async with whole(PAIR, settings=settings, scripts=stays, kv_blocks=8, profile="toy") as one:
        hog = asyncio.create_task(one.post(COMPLETION, words(40), max_tokens=80, ignore_eos=True))
        await until(lambda: (seen := one.seen("d0")) is not None and seen.running == 1 and seen.blocks_reserved > 0)
        for form in FORMS:
            reply = await one.post(form, text_of(CARRY, form, 1), max_tokens=80)
            assert (reply.status, reply.error["code"]) == (429, "queue_full")
            assert int(reply.headers["retry-after"]) >= 1
        hog.cancel()
        await asyncio.gather(hog, return_exceptions=True)
        await one.settled()


@pytest.mark.slow
async def test_b25_a_stream_that_flows_outlives_every_deadline_and_a_silent_one_is_kept_alive() -> None:
    """Seconds for minutes: the answer takes longer than all limits together."""
    assert GatewayConfig().deadlines.total_s is None
    limits = {"queue_s": 1.0, "reserve_s": 1.0, "prefill_s": 1.0, "first_token_s": 1.0, "idle_s": 2.0, "write_s": 1.0}
    slow = {"kind": "step_time", "every": 1, "add_s": 0.15}
    pause = fault("hang", "pull", phase="decode", after_tokens=20, for_s=1.0)
    settings = config(deadlines=limits, heartbeat_s=0.1)
    async with whole(PAIR, settings=settings, scripts={"d0": script(slow, pause)}) as one:
        began_s = asyncio.get_running_loop().time()
        replies = await asyncio.gather(
            *[one.post(form, text_of(CARRY, form), max_tokens=50, ignore_eos=True) for form in FORMS]
        )
        assert asyncio.get_running_loop().time() - began_s > sum(limits.values())
        for reply in replies:
            assert reply.done, reply.raw[-300:]
            assert len(reply.tokens()) == 50
            if reply.streamed:
                assert reply.raw.count(b": waiting\n\n") >= 2
        await one.settled()


async def test_b25_silence_is_what_ends_a_stream() -> None:
    dumb = fault("hang", "pull", phase="decode", after_tokens=5)
    settings = config(deadlines={"idle_s": 0.3})
    async with whole(PAIR, settings=settings, scripts={"d0": script(dumb)}) as one:
        replies = await asyncio.gather(*[one.post(form, text_of(CARRY, form), ignore_eos=True) for form in FORMS])
        for reply in replies:
            if reply.form.stream:
                assert broken(reply, "idle_timeout")
            else:
                assert (reply.status, reply.error["code"]) == (504, "idle_timeout")
        await one.settled()


def test_b26_the_server_keeps_idle_connections_longer_than_clients_do() -> None:
    """So it is the client that closes, and no request meets a connection that is just being closed."""
    usual_s = {"httpx and the openai client": 5.0, "aiohttp": 15.0, "nginx upstream": 60.0, "AWS ALB": 60.0}
    assert max(usual_s.values()) < KEEP_ALIVE_S


@pytest.mark.slow
async def test_b26_a_thousand_at_once_over_connections_that_were_idle() -> None:
    """Nobody gets a connection error or a 5xx, though every connection has been used and left alone before."""
    patient = dict.fromkeys(("queue_s", "reserve_s", "prefill_s", "first_token_s", "idle_s"), 4 * HANG_S)
    async with whole(PAIR, settings=config(deadlines=patient), max_num_seqs=512) as one:
        pool = Pool(Endpoint(one.host, one.port))

        async def ask(seed: int) -> tuple[int, bool]:
            form = FORMS[seed % 4]
            text = text_of(CARRY, form, seed % 50)
            got = Got()
            body = orjson.dumps(one.body(form, text, max_tokens=2, ignore_eos=True))
            head = f"POST {form.path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            await pool.exchange(head.encode() + body, got)
            reply = Reply(form, got.status, got.headers, bytes(got.data))
            return reply.status, reply.done and reply.tokens() == truth(form, text, 2, ignore_eos=True)

        for count in (100, 1000):
            assert set(await asyncio.gather(*[ask(seed) for seed in range(count)])) == {(200, True)}
            await asyncio.sleep(0.2)
        pool.close()
        await one.settled(3.0)


class Got:
    """Implements loadgen.client.wire.Sink."""

    def __init__(self) -> None:
        self.status, self.headers, self.data = 0, dict[str, str](), bytearray()

    def head(self, status: int, headers: dict[str, str], at_s: float) -> None:
        self.status, self.headers = status, headers

    def body(self, data: bytes, at_s: float) -> None:
        self.data += data

    def complete(self, at_s: float) -> None: ...


@asynccontextmanager
async def target(*answers: bytes) -> AsyncIterator[tuple[Pool, list[int]]]:
    """A server that says `answers` in turn, one a request, and hangs up where one does not end properly."""
    asked: list[int] = []
    left = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                asked.append(len(asked))
                answer = next(left)
                writer.write(answer)
                await writer.drain()
                if not answer.endswith(b"ok") or b"close-after" in answer:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        pool = Pool(Endpoint("127.0.0.1", port))
        yield pool, asked
        pool.close()


REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
LAST = b"HTTP/1.1 200 OK\r\nx: close-after\r\ncontent-length: 2\r\n\r\nok"


async def test_b26_a_request_is_sent_again_only_when_nothing_was_received() -> None:
    """Our own client, the load generator's: a kept connection may have been closed while it was idle."""
    async with target(LAST, WHOLE) as (pool, asked):
        await pool.exchange(REQUEST, Got())
        await pool.exchange(REQUEST, Got())  # the connection is gone, or goes as we send
        assert len(asked) == 2
    half = WHOLE[:-1]
    async with target(WHOLE, half, WHOLE) as (pool, asked):
        await pool.exchange(REQUEST, Got())
        with pytest.raises(ConnectionLostError) as caught:
            await pool.exchange(REQUEST, Got())
        assert caught.value.answered
        assert len(asked) == 2  # not a third time: the server may have done what was asked
    async with target(b"", WHOLE) as (pool, asked):
        with pytest.raises(ConnectionLostError):
            await pool.exchange(REQUEST, Got())  # a new connection is no idle one
        assert len(asked) == 1


async def test_b26_a_broken_connection_to_a_worker_is_no_error_of_the_next_request() -> None:
    async with whole(PAIR) as one:
        for form in FORMS:
            assert (await one.post(form, text_of(CARRY, form))).status == 200
            for attachment in one.members["d0"].worker.decode._attachments:
                attachment.outbox.close()
            text = text_of(CARRY, form, 3)
            reply = await one.post(form, text)
            assert (reply.status, reply.tokens()) == (200, truth(form, text))
        await one.settled()
