"""`tandem traffic`, `tandem plan --observed` and `tandem plan watch`: what they ask, what they show, when they apply (R-63)."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from loadgen.failure import InterruptedEarlyError
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
from tests.loadgen.plan import test_accounts as accounts
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
    async def nobody(self: GatewayClient, *_: Any, **__: Any) -> dict[str, Any]:
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
        told = await readable(self, within_s, rows=rows)
        return told | ({"schema": "tandem-traffic/9"} if len(asked) > 1 else {})

    monkeypatch.setattr(GatewayClient, "traffic", newer)
    result = watched(tmp_path, monkeypatch, Plans(behind=0.2))
    assert "use the tandem of that gateway's version; nothing is planned meanwhile" in result.output
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
        self.causes.append(cause.drift)
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
    assert "lengths: answers are shorter: m; prompts are distributed otherwise (median 700 -> 799)" in result.output
    assert "; rate: no change shown (2 -> 2.01/s)" in result.output
    assert "201 requests in 100 s" in result.output
    assert "Change: +25.0%" in result.output
    assert "applied" not in result.output


def test_ctrl_c_before_anything_was_measured_ends_the_watch(
    asked: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as "no plan", and the watch went on."""

    class Interrupted(Plans):
        def __call__(self, *_: Any) -> Replanned:
            raise InterruptedEarlyError("no layout was measured: interrupted")

    result = watched(tmp_path, monkeypatch, Interrupted(behind=0.2))
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.INTERRUPTED


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


class Fleet:
    """Gateways by their endpoint; each may be silent from some round of questions on, and until another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **accounts: dict[str, Any]) -> None:
        self.accounts, self.rounds = accounts, 0
        self.silent: dict[str, range] = {}
        fleet = self

        async def traffic(self: GatewayClient, within_s: float | None = None, *, rows: bool = False) -> dict[str, Any]:
            name = self.endpoint.removeprefix("http://")
            fleet.rounds += name == next(iter(fleet.accounts))
            if fleet.rounds in fleet.silent.get(name, ()):
                raise GatewayUnreachableError(f"no gateway answers at {self.endpoint}")
            told = fleet.accounts[name]
            return told if rows else {key: value for key, value in told.items() if key != "rows"}

        monkeypatch.setattr(GatewayClient, "traffic", traffic)
        monkeypatch.setattr("tandem.cli.plan_vigil._POLL_S", 0.0)

    @property
    def words(self) -> list[str]:
        return [word for name in self.accounts for word in ("--endpoint", name)]

    def drifts(self, name: str) -> None:
        event = {"number": 1, "age_s": 60.0, "requests_since": 120, "change": "shorter", "class": ["m"], "answers": 9}
        self.accounts[name]["drifts"] = {"count": 1, "newest": [event]}


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = {name: accounts.account(name, 200, 0.5, output=output) for name, output in (("gw-a", 10), ("gw-b", 90))}
    return Fleet(monkeypatch, **made)


def test_the_traffic_of_several_gateways_is_shown_and_planned_for_as_one(fleet: Fleet, tmp_path: Path) -> None:
    """Each sees its share: of one of them the rate was half of what came."""
    file = tmp_path / "traffic.json"
    shown = tandem("traffic", *fleet.words, "-o", str(file))
    assert shown.exit_code == 0, shown.output
    assert "400 requests in 100 s: 4/s" in shown.output
    assert "gw-b: 200 in 100 s, 2/s" in shown.output
    assert len(json.loads(file.read_text())["rows"]) == 400
    observed = [word for name in fleet.accounts for word in ("--observed", f"http://{name}")]
    for source in (["--observed", str(file)], observed):
        refused = tandem("plan", *source, "--within", "5", *LIMITS)
        assert "22 requests in 5 s are too few to plan by" in str(refused.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("traffic", "--endpoint", "gw-a", "--endpoint", "http://GW-A/"),
            "http://GW-A/ is given twice; name each gateway once",
        ),
        (
            ("plan", "--observed", "http://gw-a", "--observed", "http://gw-a", *LIMITS),
            "--observed http://gw-a is given twice",
        ),
        (("plan", "--observed", "http://gw-a", "--observed", "a.json", *LIMITS), "a file stands alone"),
    ],
)
def test_gateways_are_named_once_and_files_alone(fleet: Fleet, words: tuple[str, ...], said: str) -> None:
    result = tandem(*words)
    assert isinstance(result.exception, CliError)
    assert (result.exception.status, said in str(result.exception)) == (Exit.USAGE, True), result.exception


def test_what_is_no_fleet_ends_with_its_own_line(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for who, status, said in (
        ({"id": "gw-a"}, Exit.USAGE, "gw-a and gw-b are one gateway"),
        ({"id": "gw-b", "version": "2"}, Exit.FAILED, "bring them to one version"),
    ):
        fleet.accounts["gw-b"]["gateway"] = {"version": "1", "model": "m"} | who
        for result in (tandem("traffic", *fleet.words), watched(tmp_path, monkeypatch, Plans(0.2), *fleet.words)):
            assert isinstance(result.exception, CliError)
            assert (result.exception.status, said in str(result.exception)) == (status, True)


def test_a_gateway_that_does_not_answer_is_named_and_its_part_not_left_out(fleet: Fleet) -> None:
    fleet.silent["gw-b"] = range(99)
    result = tandem("traffic", *fleet.words)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.UNREACHABLE
    assert "answers at http://gw-b. Without its part the traffic is not whole; leave that --endpoint out" in str(
        result.exception
    )


def test_nothing_is_planned_by_a_part_of_the_traffic(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gw-a has news from the fourth round on, while gw-b is silent: it would have been planned for by half of the traffic."""
    fleet.silent["gw-b"] = range(4, 9)
    plans = Plans(behind=0.2)
    real = GatewayClient.traffic

    async def later(self: GatewayClient, within_s: float | None = None, *, rows: bool = False) -> dict[str, Any]:
        if fleet.rounds == 4:
            fleet.drifts("gw-a")
        return await real(self, within_s, rows=rows)

    monkeypatch.setattr(GatewayClient, "traffic", later)
    result = watched(tmp_path, monkeypatch, plans, *fleet.words)
    assert result.exit_code == 0, result.output
    assert result.output.count("nothing is planned meanwhile") == 1
    assert "the whole traffic is known again" in result.output
    assert fleet.rounds >= 9
    assert "observed: 242 requests in 60 s, 4.03/s" in result.output
    assert plans.causes == ["answers are shorter: m"]


def test_a_load_balancer_is_not_watched(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, turns = GatewayClient.traffic, iter(range(99))

    async def in_turn(self: GatewayClient, within_s: float | None = None, *, rows: bool = False) -> dict[str, Any]:
        told = await real(self, within_s, rows=rows)
        return told | {"gateway": {"id": f"gw-{next(turns) % 2}", "version": "1", "model": "m"}}

    monkeypatch.setattr(GatewayClient, "traffic", in_turn)
    result = watched(tmp_path, monkeypatch, Plans(behind=0.2), "--endpoint", "gw-a")
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.USAGE
    assert "as by a load balancer: name each gateway itself" in str(result.exception)
