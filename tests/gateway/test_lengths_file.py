"""What was learnt of lengths outlives the process, and a bad file never keeps a gateway from starting."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from gateway.app import run_gateway
from gateway.config import GatewayConfig
from gateway.lengths_file import LengthsFile
from gateway.policy.control.controller import Controller
from gateway.policy.estimate import Features, FinishedBy
from gateway.policy_config import PolicyConfig
from tests.gateway.fleet import until

WHAT = Features("toy", 100, "tenant")


def controller(now_s: float = 0.0) -> Controller:
    return Controller(PolicyConfig(), lambda: now_s)


def learnt(tokens: int = 777) -> Controller:
    one = controller()
    for _ in range(300):
        one.lengths.observe(WHAT, tokens, FinishedBy.STOP)
    return one


async def saved(file: Path) -> Controller:
    one = learnt()
    await LengthsFile(file, one, 60.0).save()
    return one


async def test_a_restart_keeps_estimates(tmp_path: Path) -> None:
    file = tmp_path / "run" / "lengths.json"
    before = await saved(file)
    after = controller(now_s=5.0e6)  # of another machine's monotonic clock
    async with LengthsFile(file, after, 60.0):
        old, new = before.lengths.estimate(WHAT), after.lengths.estimate(WHAT)
        assert new.mean == pytest.approx(old.mean, rel=0.01)
        assert new.mean != pytest.approx(controller().lengths.estimate(WHAT).mean, rel=0.1)
        assert after.lengths.ledger.account(after.lengths.class_of(WHAT)).requests == 300
    assert [each.name for each in file.parent.iterdir()] == ["lengths.json"]


async def test_what_is_learnt_is_written_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    file, one = tmp_path / "lengths.json", controller()
    async with LengthsFile(file, one, 0.01):
        await until(file.exists, 30.0)
        one.lengths.observe(WHAT, 5, FinishedBy.STOP)
    kept = controller()
    LengthsFile(file, kept, 60.0).restore()
    assert [each.observations for each in kept.lengths.classes()] == [1] * 5


async def test_two_gateways_may_write_into_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither writes through the other's unfinished file."""
    written: set[Path] = set()
    finish = Path.replace

    def seen(self: Path, target: Path) -> Path:
        written.add(self)
        return finish(self, target)

    monkeypatch.setattr(Path, "replace", seen)
    for name in ("lengths.0", "lengths.1"):
        await saved(tmp_path / name)
    assert len(written) == 2


def _spoiled(document: dict[str, Any], what: str) -> bytes:
    match what:
        case "old":
            document["schema"] = "tandem-length-model/0"
        case "other accuracy":
            document["accuracy"] = 0.5
        case "no ledger":
            del document["ledger"]
        case "weight":
            document["classes"][0]["sketch"]["ended"] = [[3, -1.0]]
        case "bin":
            document["classes"][0]["sketch"]["ended"] = [["x", 1.0]]
        case "list":
            return b"[1, 2]"
        case "torn":
            return json.dumps(document).encode()[:200]
        case "binary":
            return bytes(range(256))
        case "empty":
            return b""
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "what", ["old", "other accuracy", "no ledger", "weight", "bin", "list", "torn", "binary", "empty"]
)
async def test_a_file_that_is_no_good_is_a_warning_and_a_cold_start(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "lengths.json"
    await saved(file)
    file.write_bytes(bad := _spoiled(json.loads(file.read_bytes()), what))
    one = controller()
    async with LengthsFile(file, one, 60.0):
        assert one.lengths.estimate(WHAT).mean == controller().lengths.estimate(WHAT).mean
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "lengths.json cannot be used" in caplog.text
    assert file.with_name("lengths.json.unusable").read_bytes() == bad
    assert json.loads(file.read_bytes())["classes"] == []


async def test_a_file_that_cannot_be_read_or_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "lengths.json").mkdir()
    async with LengthsFile(tmp_path / "lengths.json", controller(), 60.0):
        pass
    assert "cannot be read" in caplog.text
    assert "cannot be written" in caplog.text


async def test_a_gateway_restores_at_its_start_and_saves_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "lengths.json"
    await saved(file)
    before = json.loads(file.read_bytes())
    stop = asyncio.Event()
    stop.set()
    await run_gateway(GatewayConfig(port=0, drain_s=1, lengths_file=str(file)), stop)
    after = json.loads(file.read_bytes())
    assert [row["observations"] for row in after["classes"]] == [row["observations"] for row in before["classes"]]
    assert "cannot" not in caplog.text
