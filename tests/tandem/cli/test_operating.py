"""Commands that ask a running gateway, and what they make of its answers."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tandem.cli.failure import CliError, Exit
from tests.loadgen.test_observed import account
from tests.tandem.cli.fake_gateway import DECISION, ORDERS, STATUS, FakeGateway
from tests.tandem.cli.running import command, tandem

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_status_shows_pools_workers_pairs_and_requests(gateway: FakeGateway) -> None:
    result = tandem("status", "--endpoint", gateway.url)
    assert result.exit_code == 0
    for shown in (
        "gw-1: disaggregated",
        "25,600",  # KV tokens of the decode pool
        "25 %",  # used
        "10 %",  # reserved
        "3 faults in a row",
        "prefill-0 → decode-0",
        "shm",
        "3.5 GB/s",
        "1.5 GB",
        "3.0 GB/s",  # in use
        "3 decoding",
        "4 wait for KV",
        "104 ms",
        "120/196",  # promised, of what the pool leaves
        "1/4",  # the pool
        "0.4 % of 12 %",
        "3,210",  # recomputed
        "Policy blue-7: forecast, 7 requests under way",
        "0.95",  # came/estimated
        "87,654",
        "4 default (normal)",
        "3 queue_full",
        "default: the fairness budget of completion is spent",
    ):
        assert shown in result.output


def test_explain_shows_estimate_candidates_and_why(gateway: FakeGateway) -> None:
    result = tandem("explain", "r1", "--endpoint", gateway.url)
    assert result.exit_code == 0
    assert gateway.requests[0][:2] == ("GET", "/tandem/v1/decisions/r1")
    said = " ".join(result.output.split())
    for shown in (
        "r1: class default, policy blue-7 (forecast), 3.2 s ago",
        "expected 120 (half 100, 90 % 250, 99 % 400); its KV counts as the prompt and 180 tokens",
        "placed decode-0 (handoff)",
        "decode-0 fits remote 0.510 102 16",
        "answered with 77 tokens, ended by stop",
    ):
        assert shown in said
    for own in ("chatcmpl-r1", "cmpl-r1"):
        assert tandem("explain", own, "--endpoint", gateway.url).stdout == result.stdout
    as_json = tandem("explain", "r1", "--json", "--endpoint", gateway.url)
    assert json.loads(as_json.output) == DECISION


def test_status_as_json_is_the_gateways_document(gateway: FakeGateway) -> None:
    result = tandem("status", "--json", "--endpoint", gateway.url)
    assert json.loads(result.output) == STATUS


def test_the_api_key_is_sent_from_the_environment(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_API_KEY", "k1")
    monkeypatch.setenv("TANDEM_ENDPOINT", gateway.url)
    assert tandem("status").exit_code == 0
    assert gateway.requests[0][2] == "Bearer k1"


@pytest.mark.parametrize(("flags", "resume"), [((), False), (("--resume",), True)])
def test_drain_and_resume(gateway: FakeGateway, flags: tuple[str, ...], resume: bool) -> None:
    result = tandem("drain", "decode-0", *flags, "--endpoint", gateway.url)
    assert result.exit_code == 0
    method, path, _, body = gateway.requests[0]
    assert (method, path) == ("POST", "/tandem/v1/workers/decode-0/drain")
    assert body == {"resume": resume}
    assert ("3 requests" in result.output) is not resume


def test_a_role_is_changed(gateway: FakeGateway) -> None:
    result = tandem("role", "decode-0", "prefill", "--endpoint", gateway.url)
    assert result.exit_code == 0
    assert result.output == "decode-0 is prefill now; it was decode\n"
    method, path, _, body = gateway.requests[0]
    assert (method, path, body) == ("POST", "/tandem/v1/workers/decode-0/role", {"role": "prefill"})
    assert "decode already" in tandem("role", "decode-0", "decode", "--endpoint", gateway.url).output


@pytest.mark.slow
def test_a_role_that_does_not_exist_is_wrong_usage(gateway: FakeGateway) -> None:
    assert command("role", "decode-0", "chef", "--endpoint", gateway.url).returncode == Exit.USAGE
    assert not gateway.requests


def test_a_refusal_is_the_gateways_own_words(gateway: FakeGateway) -> None:
    gateway.refusal = (404, "no worker decode-9")
    result = tandem("drain", "decode-9", "--endpoint", gateway.url)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.FAILED
    assert "no worker decode-9" in str(result.exception)


def test_who_has_no_key_is_told_how_the_command_takes_one(gateway: FakeGateway) -> None:
    gateway.refusal = (401, "No API key. Send one as `Authorization: Bearer KEY`.")
    assert str(tandem("status", "--endpoint", gateway.url).exception).endswith("--api-key KEY, or TANDEM_API_KEY)")
    gateway.refusal = (403, "Not an operator.")
    assert "--api-key" not in str(tandem("status", "--endpoint", gateway.url).exception)


NASTY = "evil\x1b[2J\r\nfake line\u202e\x07"
SHOWN = r"evil\x1b[2J\r\nfake line\u202e\x07"


def test_what_clients_have_written_does_nothing_to_an_operators_terminal(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's name of a model, in its refusal, cleared the screen of whoever asked for an explanation."""
    error = {"status": 404, "code": "model_not_found", "param": NASTY, "message": NASTY, "numbers": {NASTY: 1}}
    error |= {"phase": "received", "age_s": 1.0}
    monkeypatch.setitem(ORDERS, "r2", {"prompts": [], "error": error})
    worker = STATUS["workers"][0] | {"worker_id": NASTY, "reason": NASTY}
    monkeypatch.setitem(ORDERS, "status", {**STATUS, "workers": [worker], "pairs": []})
    explained = tandem("explain", "r2", "--endpoint", gateway.url)
    status = tandem("status", "--endpoint", gateway.url)
    as_json = tandem("explain", "r2", "--json", "--endpoint", gateway.url)
    gateway.refusal = (404, NASTY)
    refused = tandem("drain", "decode-9", "--endpoint", gateway.url)
    assert explained.output.count(SHOWN) == 3
    assert SHOWN in status.output
    assert json.loads(as_json.output)["error"]["message"] == NASTY
    assert str(refused.exception) == f"the gateway answered 404: {SHOWN}"
    written = explained.output + status.output + as_json.output + str(refused.exception)
    assert all(char.isprintable() or char == "\n" for char in written)


def test_names_that_look_like_markup_are_shown_as_they_are(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`[/b]` was the end of what had not begun, and the command with it; `[red]` and `:bug:` were gone from the name."""
    name = "[/b][red]:bug:"
    worker = STATUS["workers"][0] | {"worker_id": name}
    queue = [{"band": "normal", "klass": name, "waiting": 4}]
    policy = {**STATUS["policy"], "queue": queue}
    monkeypatch.setitem(ORDERS, "status", {**STATUS, "workers": [worker], "pairs": [], "policy": policy})
    monkeypatch.setitem(ORDERS, "r2", {"prompts": [DECISION["prompts"][0] | {"klass": name, "tenant": name}]})
    traffic = account([1.0] * 3)
    classes = {name: traffic["classes"]["chat"]}
    monkeypatch.setitem(ORDERS, "traffic", {**traffic, "classes": classes})
    for words in (("status",), ("explain", "r2"), ("traffic",)):
        result = tandem(*words, "--endpoint", gateway.url)
        assert result.exit_code == 0, result.exception
        assert name in result.output


@pytest.mark.slow
def test_an_unreachable_gateway_names_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = command("status", "--endpoint", f"http://127.0.0.1:{port}")
    assert result.returncode == Exit.UNREACHABLE
    assert "tandem up" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_answer_that_is_not_a_gateways_is_told_from_a_refusal() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:  # answers every method with HTML
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        result = tandem("status", "--endpoint", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.UNREACHABLE
    assert "is no gateway" in str(result.exception)


class _Page(BaseHTTPRequestHandler):
    """As a load balancer's page for whoever asks for anything."""

    body = b"<html>welcome</html>"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _List(_Page):
    body = b"[]"


@pytest.mark.parametrize("page", [_Page, _List])
@pytest.mark.parametrize("question", [("status",), ("traffic",), ("explain", "r1"), ("policy", "show")])
def test_a_page_that_answers_everything_with_200_is_no_gateway(page: type[_Page], question: tuple[str, ...]) -> None:
    """It ended in a traceback: what was no error was taken to be a document."""
    with ThreadingHTTPServer(("127.0.0.1", 0), page) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        result = tandem(*question, "--endpoint", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.UNREACHABLE
    assert "is no gateway (status 200); name the gateway with --endpoint" in str(result.exception)


def test_an_endpoint_needs_no_scheme(gateway: FakeGateway) -> None:
    assert tandem("status", "--endpoint", gateway.url.removeprefix("http://")).exit_code == 0


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:99999", "http://host:port", "ftp://somewhere", "http://:80", ""]
)
def test_an_endpoint_that_is_no_address_is_one_line(endpoint: str) -> None:
    result = tandem("status", "--endpoint", endpoint)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.UNREACHABLE
    assert str(result.exception).startswith(repr(endpoint))
    assert "write http://HOST:PORT" in str(result.exception)


def test_a_key_may_have_any_characters(gateway: FakeGateway) -> None:
    assert tandem("status", "--json", "--endpoint", gateway.url, "--api-key", "clé").exit_code == 0


def test_a_worker_of_any_name_is_asked_for_by_that_name(gateway: FakeGateway) -> None:
    assert tandem("drain", "a?b/c", "--endpoint", gateway.url).exit_code == 0
    assert gateway.requests[-1][1] == "/tandem/v1/workers/a%3Fb%2Fc/drain"


def test_the_status_fits_80_columns_whatever_the_reasons(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    output = tandem("status", "--endpoint", gateway.url).output
    assert "3 faults in a row" in output
    assert "…" not in output
