"""Streaming mechanics."""

from tests.conformance.mutations import Mutation

STREAM = "tests/conformance/test_streaming.py::test_"

MUTATIONS = (
    Mutation(
        "B-20",
        "unfinished characters are not kept for the next token",
        "gateway/text/detokenizer.py",
        'utf_8_decode(data, "replace", False)',
        'utf_8_decode(data, "replace", True)',
        f"{STREAM}b20_text_is_the_same_whatever_frames_its_tokens_came_in",
    ),
    Mutation(
        "B-21",
        "lines that end in CRLF are not understood",
        "loadgen/client/sse.py",
        'if line.endswith(b"\\r"):',
        "if False:",
        f"{STREAM}b21_events_are_the_same_for_any_split_line_end_and_spelling",
    ),
    Mutation(
        "B-23",
        "a stream that breaks ends as if it were complete",
        "gateway/http/answering.py",
        "        await writer.broken(shown)\n        raise BrokenStreamError(error.message)\n",
        '        await writer.end_events(b"")\n',
        f"{STREAM}b23_a_decode_worker_that_dies_after_ten_tokens",
    ),
    Mutation(
        "B-24",
        "the status line does not wait for the first token",
        "gateway/http/answering.py",
        "        async for batch in answer:\n            if not writer.started:\n                await self._start()\n",
        "        await self._start()\n        async for batch in answer:\n",
        f"{STREAM}b24_what_decode_says_before_any_token_is_the_status",
    ),
    Mutation(
        "B-25",
        "a silent stream gets no heartbeat",
        "gateway/http/pulse.py",
        "        elif idle_s >= self._beat_s:\n",
        "        elif False:\n",
        f"{STREAM}b25_a_stream_that_flows_outlives_every_deadline_and_a_silent_one_is_kept_alive",
    ),
    Mutation(
        "B-26",
        "a request is sent again although part of an answer had come",
        "loadgen/client/wire.py",
        "                if error.answered:\n",
        "                if False:\n",
        f"{STREAM}b26_a_request_is_sent_again_only_when_nothing_was_received",
    ),
    Mutation(
        "B-26",
        "the server closes idle connections before its clients do",
        "gateway/http/server.py",
        "KEEP_ALIVE_S = 120",
        "KEEP_ALIVE_S = 5",
        f"{STREAM}b26_the_server_keeps_idle_connections_longer_than_clients_do",
    ),
)
