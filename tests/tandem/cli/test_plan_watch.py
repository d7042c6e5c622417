"""`tandem traffic`, `tandem plan --observed` and `tandem plan watch`: what they ask, what they show, when they apply (R-63)."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.layout_document import read_layout
from loadgen.plan.plan import Planned
from loadgen.plan.replan import Replanned
from loadgen.plan.revision import Revision
from proto.worker import Role
from tandem.cli.app import app
from tandem.cli.failure import CliError, Exit
from tandem.cli.plan_apply import apply_layout
from tandem.client import GatewayClient, GatewayUnreachableError
from tests.loadgen.plan.test_revision import planned, row
from tests.loadgen.test_observed import account

PROFILE = "h200-sxm/llama-3.1-8b"
OLD = Candidate((Part(Role.BOTH, 2, Engine(PROFILE, tokens=2048)),))
NEW = Candidate((Part(Role.PREFILL, 1, Engine(PROFILE, tokens=2048)), Part(Role.DECODE, 1, Engine(PROFILE))))
RUNNING = f"engine: {{profile: {PROFILE}}}\nlayout: {{colocated: {{workers: 2}}}}\n"
LIMITS = ("--model", PROFILE, "--gpus", "2", "--goodput", "ttft:300 tpot:30")


def tandem(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What a gateway was asked for; 400 requests came, and from the second question on there is a drift."""
    questions: list[bool] = []
    document = account([0.5] * 400)

    async def traffic(self: GatewayClient, within_s: float | None = None, *, rows: bool = False) -> dict[str, Any]:
        questions.append(rows)
        event = {"number": 1, "age_s": 100.0, "requests_since": 201, "change": "shorter", "class": ["m"], "answers": 9}
        drifts = {"count": 1, "newest": [event]} if len(questions) > 3 else {"count": 0, "newest": []}
        told = document | {"drifts": drifts}
        return told if rows else {key: value for key, value in told.items() if key != "rows"}

    monkeypatch.setattr(GatewayClient, "traffic", traffic)
    monkeypatch.setattr("tandem.cli.plan_vigil._POLL_S", 0.0)
    return questions


def test_traffic_is_shown_and_kept_for_a_plan(asked: list[bool], tmp_path: Path) -> None:
    file = tmp_path / "traffic.json"
    shown = tandem("traffic", "-o", str(file))
    assert shown.exit_code == 0, shown.output
    assert asked == [True]
    assert "400 requests in 200 s: 2/s" in shown.output
    assert len(json.loads(file.read_text())["rows"]) == 400
    assert "rows" not in json.loads(tandem("traffic", "--json").output)
    refused = tandem("plan", "--observed", str(file), "--within", "10", *LIMITS)
    assert "21 requests in 10 s are too few to plan by" in str(refused.exception)
    assert f"tandem plan --observed {file} plans by them" in shown.output.replace("\n", "")


def test_a_document_of_many_lines_and_a_gateway_without_a_scheme_are_read_as_meant(
    asked: list[bool], tmp_path: Path
) -> None:
    """What `tandem traffic --json` had written was "not JSON", and HOST:PORT, which --endpoint takes, no such file."""
    file = tmp_path / "traffic.json"
    file.write_text(tandem("traffic", "--json").output)
    assert "it has no rows; ask with rows=1, or use tandem traffic -o" in str(
        tandem("plan", "--observed", str(file), *LIMITS).exception
    )
    whole = tandem("plan", "--observed", "gateway:8000", "--within", "10", *LIMITS)
    assert asked == [False, True]
    assert "21 requests in 10 s are too few to plan by" in str(whole.exception)
    for text, cause in (("", "empty"), ("[1]", "not a JSON object"), ("{", "not JSON")):
        file.write_text(text)
        assert cause in str(tandem("plan", "--observed", str(file), *LIMITS).exception)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--observed", "nowhere.json", *LIMITS), "no such file"),
        (("--within", "5", "-w", "azure-conv", *LIMITS), "--within goes with --observed"),
        (("watch", "--running", "layout.yaml", *LIMITS, "--yes"), "--yes needs --apply"),
        (("watch", "--running", "layout.yaml", *LIMITS[:4]), "a plan needs an SLO"),
        (("watch", "--running", "layout.yaml"), "tandem plan watch needs --model"),
    ],
)
def test_bad_words_are_one_line(
    words: tuple[str, ...], cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("layout.yaml").write_text(RUNNING)
    result = tandem("plan", *words)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.USAGE
    assert cause in str(result.exception)


def test_without_a_gateway_there_is_nothing_to_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(self: GatewayClient, **_: Any) -> dict[str, Any]:
        raise GatewayUnreachableError("no gateway answers")

    monkeypatch.setattr(GatewayClient, "traffic", nobody)
    monkeypatch.chdir(tmp_path)
    Path("layout.yaml").write_text(RUNNING)
    result = tandem("plan", "watch", "--running", "layout.yaml", *LIMITS)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.UNREACHABLE


def test_a_gateway_whose_account_cannot_be_read_is_named_and_not_watched_in_silence(
    asked: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readable = GatewayClient.traffic

    async def newer(self: GatewayClient, within_s: float | None = None, *, rows: bool = False) -> dict[str, Any]:
        if len(asked) > 5:
            raise KeyboardInterrupt
        return await readable(self, within_s, rows=rows) | {"schema": "tandem-traffic/9"}

    monkeypatch.setattr(GatewayClient, "traffic", newer)
    result = watched(tmp_path, monkeypatch, Plans(behind=0.2))
    assert result.output.count("not a tandem-traffic/1 document: 'tandem-traffic/9'") == 1


class Plans:
    """In place of a search: the layouts that were said to run, and a change that is advised or not."""

    def __init__(self, behind: float) -> None:
        self.running: list[Candidate] = []
        self.causes: list[str] = []
        self._behind = behind

    def __call__(self, question: Any, running: Path, cause: Any, folder: Path, *_: Any) -> Replanned:
        found: Planned = planned(row(NEW, 10.0), row(OLD, 10.0 * (1 - self._behind), self._behind, 0.01, 0.3))
        self.running.append(read_layout(running, PROFILE, 256))
        self.causes.append(cause.text)
        folder.mkdir(parents=True, exist_ok=True)
        layout = folder / "layout.yaml"
        layout.write_text(RUNNING.replace("2}", "2, engine: {max_num_batched_tokens: 512}}"))
        revision = Revision.of(found, 0.05)
        return Replanned(found, revision, layout, tuple(revision.lines()))


def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plans: Plans, *words: str) -> Result:
    monkeypatch.setattr("tandem.cli.plan_vigil.replan", plans)
    monkeypatch.chdir(tmp_path)
    Path("layout.yaml").write_text(RUNNING)
    return tandem("plan", "watch", "--running", "layout.yaml", *LIMITS, "--least", "200", "--plans", "1", *words)


def test_a_drift_is_planned_for_from_the_traffic_since(
    asked: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = Plans(behind=0.2)
    result = watched(tmp_path, monkeypatch, plans)
    assert result.exit_code == 0, result.output
    assert plans.causes == ["answers are shorter: m"]
    assert "201 requests in 100 s" in result.output
    assert "Change: +25.0%" in result.output
    assert "applied" not in result.output


@pytest.mark.parametrize(
    ("behind", "words", "done", "said"),
    [
        (0.2, ("--apply", "cp {} applied.yaml", "--yes"), True, "applied: cp"),
        (0.2, ("--apply", "cp {} applied.yaml"), False, "not applied; to apply it: cp"),  # nobody is at the terminal
        (0.03, ("--apply", "cp {} applied.yaml", "--yes"), False, "within the margin"),
    ],
)
def test_only_what_is_advised_and_told_to_is_applied(
    asked: list[bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    behind: float,
    words: tuple[str, ...],
    done: bool,
    said: str,
) -> None:
    result = watched(tmp_path, monkeypatch, Plans(behind), *words)
    assert result.exit_code == 0, result.output
    assert said in result.output
    assert (tmp_path / "applied.yaml").exists() is done


def test_what_was_applied_is_what_the_next_plan_is_held_against(
    asked: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = Plans(behind=0.2)
    words = ("--apply", "true", "--yes", "--plans", "2", "--interval", "0")
    events = iter(range(1, 99))
    real = GatewayClient.traffic

    async def again_and_again(self: GatewayClient, within_s: float | None = None, *, rows: bool = False) -> Any:
        document = await real(self, rows=rows)
        if document["drifts"]["count"]:
            number = next(events)
            document["drifts"]["count"] = document["drifts"]["newest"][0]["number"] = number
        return document

    monkeypatch.setattr(GatewayClient, "traffic", again_and_again)
    result = watched(tmp_path, monkeypatch, plans, *words)
    assert result.exit_code == 0, result.output
    assert [candidate.parts[0].engine.tokens for candidate in plans.running] == [8192, 512]


def test_a_command_that_fails_has_applied_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not apply_layout("false {}", tmp_path / "layout.yaml", ask=False)
    assert "not applied: status 1" in capsys.readouterr().err
    assert not apply_layout("", tmp_path / "layout.yaml", ask=False)
