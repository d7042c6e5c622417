"""The commands, as a user meets them: files, exit codes, one-line causes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # it has no types
import pytest

from loadgen.cli import main
from loadgen.cli.app import gathered
from loadgen.cli.arms import gpu_counts, gpus_of, named
from loadgen.failure import LoadgenError
from tests.waiting import HANG_S

HERE = Path(__file__).parents[2]

#: A scripted target in a process of its own: first token after 20 ms, then one every 5 ms; says its URL.
SERVER = """
import asyncio, os
from dataclasses import replace
from loadgen.scripted.script import refusal, steady
from loadgen.scripted.server import Behaviour, serving
plain = steady(0.02, 0.005)
def book(body, number):
    if number == 5:
        print("begun", flush=True)
    return refusal(429, "queue_full") if number % 10 == 9 and os.environ.get("REFUSE") else plain(body, number)
async def main():
    async with serving(Behaviour(book, api_key=os.environ.get("KEY", ""))) as url:
        print(url, flush=True)
        await asyncio.sleep(6000)
asyncio.run(main())
"""


def _server(**environment: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], cwd=HERE, stdout=subprocess.PIPE, text=True, env={"PATH": "", **environment}
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    yield from _server()


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    yield from _server(REFUSE="1")


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    yield from _server(KEY="secret")


def _loadgen(*words: str, timeout: float = 2 * HANG_S) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "loadgen", *words],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


pytestmark = pytest.mark.slow

FAST = ("-w", "fixed isl=20 osl=4", "--max-send-lag", "5000", "-q")


def test_run_writes_its_files_and_tells_what_it_found(url: str, tmp_path: Path) -> None:
    done = _loadgen(
        "run", url, *FAST, "-r", "40", "-n", "60", "--goodput", "ttft:5000", "tpot:1000", "-o", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert "60 = 60 good" in done.stdout
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["config"]["load"]["workload"] == ["fixed isl=20 osl=4"]
    assert summary["scenario"]["model"] == "scripted"
    assert len((tmp_path / "requests.jsonl").read_text().splitlines()) == 60
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_rejections_stay_in_the_denominator(refusing: str, tmp_path: Path) -> None:
    done = _loadgen("run", refusing, *FAST, "-r", "50", "-n", "99", "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (run,) = json.loads((tmp_path / "summary.json").read_text())["runs"]
    # the preflight's probe was request 0, so the 9th, 19th, … of 1 to 99 are refused
    assert run["overall"]["counts"]["rejected"] == 10
    assert run["overall"]["attainment"] == pytest.approx(89 / 99, abs=1e-5)
    assert run["overall"]["reasons"] == {"queue_full": 10}


def test_closed_loop_and_chat_and_mix(url: str, tmp_path: Path) -> None:
    mix = ("-w", "fixed isl=20 osl=4 class=a tenant=t", "-w", "fixed isl=30 osl=2 class=b weight=2")
    done = _loadgen(
        "run",
        url,
        *mix,
        "-q",
        "--arrivals",
        "closed",
        "--concurrency",
        "4",
        "-n",
        "40",
        "--api",
        "chat",
        "-o",
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    (run,) = json.loads((tmp_path / "summary.json").read_text())["runs"]
    assert set(run["by_class"]) == {"a", "b"}
    assert run["load"]["peak_concurrency"] <= 4
    assert not run["warnings"], "prompts and outputs have the planned lengths"


def test_search_ends_with_an_answer(url: str, tmp_path: Path) -> None:
    done = _loadgen(
        "search",
        url,
        *FAST,
        "-n",
        "30",
        "--goodput",
        "ttft:5000",
        "--start",
        "20",
        "--highest",
        "80",
        "-o",
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    (search,) = json.loads((tmp_path / "summary.json").read_text())["searches"]
    assert [(a["goal"], a["low"]) for a in search["answers"]] == [(0.9, 80), (0.99, 80)]


def test_search_says_when_the_slo_never_holds(url: str, tmp_path: Path) -> None:
    done = _loadgen(
        "search", url, *FAST, "-n", "5", "--goodput", "ttft:1", "--start", "20", "--lowest", "10", "-o", str(tmp_path)
    )
    assert done.returncode == 2
    assert "the SLO never held for 90% of requests: at the gentlest rate the medians were ttft" in done.stderr


def test_compare_reports_both_arms_on_one_schedule(url: str, tmp_path: Path) -> None:
    done = _loadgen(
        "compare", f"a={url}", f"b={url}/v1", *FAST, "-r", "40", "-n", "20", "--repeat", "2", "-o", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "summary.json").read_text())
    assert data["comparison"]["same_work"]
    assert len(data["runs"]) == 4
    schema = json.loads((HERE / "docs" / "schemas" / "loadgen-summary-1.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(data)
    digests = {(r["repetition"], r["schedule"]["digest"]) for r in data["runs"]}
    assert len(digests) == 2
    assert "good req/s per GPU" in done.stdout
    said = " ".join(done.stdout.split())
    assert "here: while requests are sent; in the table of runs: until the last answer" in said


def test_report_flags_regressions_with_its_exit_code(url: str, tmp_path: Path) -> None:
    for name, extra in (("old", ()), ("new", ("--goodput", "ttft:1"))):
        arguments = ("run", url, *FAST, "-r", "40", "-n", "20", *extra, "-o", str(tmp_path / name))
        assert _loadgen(*arguments).returncode == 0
    same = _loadgen("report", str(tmp_path / "old"), "--baseline", str(tmp_path / "old"))
    assert same.returncode == 0
    worse = _loadgen("report", str(tmp_path / "new"), "--baseline", str(tmp_path / "old"), "--tolerance", "0.9")
    assert worse.returncode == 1
    assert "attainment" in worse.stdout
    drawn = _loadgen(
        "report",
        str(tmp_path / "old"),
        "--svg",
        str(tmp_path / "svg"),
        "--png",
        str(tmp_path / "png"),
        "--html",
        str(tmp_path / "again.html"),
    )
    assert drawn.returncode == 0
    assert (tmp_path / "again.html").read_text() == (tmp_path / "old" / "report.html").read_text()
    assert len(list((tmp_path / "svg").glob("*.svg"))) >= 4
    assert {f.stem for f in (tmp_path / "svg").iterdir()} == {f.stem for f in (tmp_path / "png").iterdir()}
    strict = _loadgen("report", str(tmp_path / "old"), "--strict")
    assert strict.returncode == 2
    assert "not stated: engine" in strict.stderr
    lacking = json.loads((tmp_path / "old" / "summary.json").read_text())
    del lacking["scenario"]["preemption_policy"]
    (tmp_path / "lacking.json").write_text(json.dumps(lacking))
    refused = _loadgen("report", str(tmp_path / "lacking.json"))
    assert refused.returncode == 2
    assert "a report needs its preemption policy" in refused.stderr


def test_interrupt_leaves_a_partial_report(tmp_path: Path) -> None:
    server = subprocess.Popen([sys.executable, "-c", SERVER], cwd=HERE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    process = subprocess.Popen(
        [sys.executable, "-m", "loadgen", "run", url, *FAST, "-r", "20", "-d", "300", "-o", str(tmp_path)],
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANG_S)
    server.kill()
    server.wait()
    assert process.returncode == 130, err
    (run,) = json.loads((tmp_path / "summary.json").read_text())["runs"]
    assert not run["complete"]
    assert any("interrupted" in reason for reason in run["invalid"])
    assert 0 < run["overall"]["offered"] < 6000
    assert "INVALID" in out


BAD = [
    (("run", "http://127.0.0.1:9"), "not reachable"),
    (("run", "ftp://x"), "not an http"),
    (("run", "URL", "--model", "gpt-5"), "no model 'gpt-5'; it serves scripted"),
    (("run", "URL", "-r", "0"), "--rate 0 is not a positive number"),
    (("run", "URL", "-r", "-3"), "--rate -3 is not a positive number"),
    (("run", "URL", "-r", "fast"), "--rate 'fast' is not a number"),
    (("run", "URL", "--goodput", "ttft:0"), "ttft:0 can never hold"),
    (("run", "URL", "--goodput", "ttft:-5"), "negative"),
    (("run", "URL", "--goodput", "foo:5"), "unknown name 'foo'"),
    (("run", "URL", "--slo", "nobody"), "unknown preset"),
    (("run", "URL", "-w", "nonsense"), "neither a known name"),
    (("run", "URL", "-w", "BROKEN"), "broken.jsonl:2: not JSON"),
    (("run", "URL", "-n", "0"), "--requests must be above 0"),
    (("run", "URL", "--body", "["), "--body is not JSON"),
    (("run", "URL", "--price", "cheap"), "neither a number nor one of"),
    (("run", "URL", "--tokenizer", "/no/such"), "no such tokenizer"),
    (("search", "URL"), "a search needs an SLO"),
    (("search", "URL", "--slo", "splitwise", "-d", "5"), "needs the same requests at every rate"),
    (("search", "URL", "--goodput", "ttft:9", "--gpus", "0"), "--gpus 0 must be above 0"),
    (("compare", "a=URL", "b=URL", "--slo", "splitwise"), "limits that they share"),
    (("compare", "a=URL", "b=URL", "--gpus", "a=2"), "unequal numbers of GPUs"),
    (("compare", "a=URL"), "at least two"),
    (("report", "/no/such/summary.json"), "no such file"),
]


@pytest.mark.parametrize(("words", "cause"), BAD)
def test_bad_input_is_one_line_and_a_non_zero_exit(
    url: str,
    tmp_path: Path,
    words: tuple[str, ...],
    cause: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"input_tokens": 5, "output_tokens": 5}\n{oops\n')
    given = [w.replace("URL", url).replace("BROKEN", str(broken)) for w in words]
    if given[0] != "report":
        for option, value in (("-w", "fixed"), ("-r", "5"), ("-n", "3")):
            if option not in given and not (option == "-r" and given[0] == "search"):
                given += [option, value]
        given += ["-o", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["loadgen", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert cause in error
    assert len([line for line in error.splitlines() if not line.startswith("arm ")]) == 1
    assert not (tmp_path / "out").exists()


def test_wrong_key_is_one_line(locked: str) -> None:
    done = _loadgen("run", locked, *FAST, "-r", "5", "-n", "3")
    assert (done.returncode, "wrong or missing --api-key" in done.stderr) == (2, True)


def test_workload_commands_show_draw_and_plot(tmp_path: Path) -> None:
    assert "natural-reasoning" in _loadgen("workload", "list").stdout
    told = json.loads(_loadgen("workload", "describe", "azure-conv", "--json", "-n", "2000").stdout)
    assert told["requests"] == 2000
    sample = _loadgen("workload", "sample", "chat-sessions", "-n", "12").stdout
    path = tmp_path / "sample.csv"
    path.write_text(sample)
    again = _loadgen("workload", "describe", str(path))
    assert again.returncode == 0, again.stderr
    assert "12 requests" in again.stdout
    drawing = tmp_path / "plot.svg"
    assert _loadgen("workload", "plot", "azure-code", "-o", str(drawing)).returncode == 0
    assert drawing.read_text().startswith("<svg")
    fitted = json.loads(
        _loadgen("workload", "fit", str(path), "--name", "mine", "--source", "x", "--licence", "y").stdout
    )
    assert fitted["schema"] == "loadgen-family/1"


@pytest.mark.parametrize("preset", ["splitwise", "mooncake-lowest-load"])
def test_run_level_slos_are_judged_against_their_reference(url: str, tmp_path: Path, preset: str) -> None:
    done = _loadgen(
        "run", url, *FAST, "-r", "20,60", "-n", "40", "--slo", preset, "--reference", "0", "-o", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "summary.json").read_text())
    assert data["slo"]["name"] == preset
    slow, fast = data["runs"]
    assert len(fast["relative"]) == (9 if preset == "splitwise" else 2)
    assert all(c["value"] > 0 for c in fast["relative"])
    assert (slow["relative"] is None) == (preset == "mooncake-lowest-load"), "the lowest load is the reference itself"
    assert "P90 ttft" in (tmp_path / "report.html").read_text()


def test_vllms_goodput_needs_no_quotes() -> None:
    words = ["run", "--goodput", "ttft:200", "tpot:20", "e2el:5000", "localhost:8000"]
    assert gathered(words) == ["run", "--goodput", "ttft:200 tpot:20 e2el:5000", "localhost:8000"]
    assert gathered(["--goodput", "itl_p99:5", "itl_p99.9:7"]) == ["--goodput", "itl_p99:5 itl_p99.9:7"]


@pytest.mark.parametrize(
    ("arguments", "gpus"),
    [
        ("", 2),
        ("--prefill 4 --decode 4", 8),
        ("--prefill 1 --decode 2 --decode-tp=4 --prefill-tp 2", 10),
        ("--colocated 8", 8),
        ("--colocated 1 --colocated-tp 8", 8),
    ],
)
def test_gpus_of_a_local_layout_are_counted(arguments: str, gpus: float) -> None:
    assert gpus_of(arguments) == gpus


def test_arms_and_gpu_counts_are_parsed() -> None:
    assert named("pd=up:--prefill 1 --set a=b") == ("pd", "up:--prefill 1 --set a=b")
    assert named("x=http://h?a=b") == ("x", "http://h?a=b")
    with pytest.raises(LoadgenError, match="is not NAME=URL"):
        named("http://h/?a=b")
    assert gpu_counts(["8", "b=4"], ["a", "b"]) == {"a": 8, "b": 4}
    with pytest.raises(LoadgenError, match="no arm 'c'"):
        gpu_counts(["c=4"], ["a"])
    with pytest.raises(LoadgenError, match="say how many"):
        gpus_of("--config x.yaml")
    with pytest.raises(LoadgenError, match="No closing quotation"):
        gpus_of("--prefill '4")


@pytest.mark.parametrize("mode", ["fixed", "paced"])
def test_sessions_and_storms_run_end_to_end(url: str, tmp_path: Path, mode: str) -> None:
    sessions = "chat-sessions think=0.05 nominal-tpot=0.0005 turns=3 scale-output=0.02"
    storm = "fixed isl=10 osl=3 requests=15 at=0.2 within=0.3"
    done = _loadgen(
        *("run", url, "-w", sessions, "--storm", storm, "--sessions", mode, "-r", "20", "-d", "2"),
        *("--max-send-lag", "5000", "-q", "-o", str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert {r["verdict"] for r in rows} == {"good"}
    assert sum(r["class"] == "storm" for r in rows) == 15
    turns = [r for r in rows if r["turn"]]
    assert turns
    ends = {(r["session"], r["turn"]): r["end_s"] for r in rows}
    waited = [r["intended_s"] > ends[r["session"], r["turn"] - 1] for r in turns]
    assert all(waited) or mode == "fixed"
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert not any("prompt length" in w for w in summary["runs"][0]["warnings"])
    assert summary["workload"]["sessions"] == mode
