"""Every kind of fault, switched on: it does what docs/faults.md says, and only to those it is meant for."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.base import EngineDeadError
from engine.simulated.faults import FaultScriptError, parse_script, read_script
from engine.simulated.inject import inject
from proto.fault import FaultError, FaultKind
from proto.sampling import Sampling
from tests.engine.simulated.fleet import Running, engine, pair, text, tokens
from tests.waiting import HANG_S

PROMPT = text("what", "is", "the", "capital", "of", "France")
SHORT = Sampling(max_tokens=10, ignore_eos=True)
#: A pull takes about a second.
SLOW_LINK: dict[str, Any] = {"profile": "instant", "link": "tcp", "speedup": 0.001}


def kind_of(running: Running, name: str) -> FaultKind | None:
    fault = running.fault_of(name)
    return None if fault is None else fault.kind


def script(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"faults": list(rules)}


async def silent(running: Running, name: str, seconds: float = 0.05) -> int:
    """How many tokens a request has when nothing more comes."""
    await asyncio.sleep(seconds)
    count = len(running.outputs.get(name, ()))
    await asyncio.sleep(seconds)
    assert len(running.outputs.get(name, ())) == count
    return count


@pytest.mark.parametrize(("phase", "seen"), [("queue", 0), ("prefill", 0), ("decode", 3)])
async def test_hang_of_one_request_leaves_the_others_alone(phase: str, seen: int) -> None:
    rule = {"kind": "hang", "phase": phase, "after_tokens": 3 if phase == "decode" else 0, "where": {"request": "bad*"}}
    async with engine(script=script(rule)) as one:
        one.submit("bad1", PROMPT, SHORT)
        assert len(await one.run("good", PROMPT, SHORT)) == 10
        assert await silent(one, "bad1") == seen
        await one.engine.abort("bad1")
        assert one.used == 0


async def test_a_hang_can_end() -> None:
    rule = {"kind": "hang", "phase": "decode", "after_tokens": 3, "for_s": 0.1}
    async with engine(script=script(rule)) as one, engine("well") as well:
        answer = await one.run("a", PROMPT, SHORT)
        assert answer == await well.run("a", PROMPT, SHORT)


async def test_a_transfer_can_hang_until_it_is_aborted() -> None:
    async with pair(script({"kind": "hang", "phase": "transfer", "for_s": 0.2})) as (writer, reader):
        first, ticket = await writer.prefill("p", PROMPT)
        reader.submit("d", (*PROMPT, first), SHORT, pull=ticket)
        assert await silent(reader, "d") == 0
        await reader.engine.abort("d")
        await reader.until(lambda: reader.used == 0 and writer.used == 0)


async def test_the_whole_engine_can_hang_and_come_back() -> None:
    async with engine(script=script({"kind": "engine_hang", "after_steps": 4, "for_s": 0.2})) as one:
        one.submit("a", PROMPT, SHORT)
        assert await silent(one, "a", 0.04) == 4
        assert len(tokens(await one.end_of("a"))) == 10


async def test_b23_death_at_token_k() -> None:
    async with engine(script=script({"kind": "die", "after_tokens": 4, "where": {"request": "bad"}})) as one:
        assert len(await one.run("good", PROMPT, SHORT)) == 10
        one.submit("bad", PROMPT, SHORT)
        with pytest.raises(EngineDeadError):
            await one.end_of("bad")
        assert len(one.outputs["bad"]) == 4
        with pytest.raises(EngineDeadError):
            one.submit("more", PROMPT, SHORT)


@pytest.mark.slow
def test_death_can_take_the_whole_process_along() -> None:
    program = """
import asyncio
from proto.sampling import Sampling
from tests.engine.simulated.fleet import engine

async def main():
    rule = {"kind": "die", "after_tokens": 3, "how": "process"}
    async with engine(script={"faults": [rule]}) as one:
        await one.run("a", (1, 2, 3), Sampling(max_tokens=10, ignore_eos=True))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=HANG_S, cwd=Path(__file__).parents[3])
    assert done.returncode == -signal.SIGKILL


async def test_refusing_and_failing_requests() -> None:
    rules = (
        {"kind": "refuse", "first": 2, "times": 1},
        {"kind": "fail", "after_tokens": 2, "fault": "kv_load_failed", "where": {"request": "c"}},
    )
    async with engine(script=script(*rules)) as one:
        await one.run("a", PROMPT, SHORT)
        with pytest.raises(FaultError) as caught:
            one.submit("b", PROMPT, SHORT)
        assert caught.value.fault.kind is FaultKind.OVERLOADED
        assert len(await one.run("c", PROMPT, SHORT)) == 2
        fault = one.fault_of("c")
        assert fault is not None
        assert fault.kind is FaultKind.KV_LOAD_FAILED
        assert one.used == 0


async def test_a_full_engine_reports_no_room() -> None:
    async with engine(script=script({"kind": "full"})) as one:
        assert one.used == one.info.blocks_total


@pytest.mark.parametrize("lost", [True, False])
async def test_lost_and_late_notifications_strand_the_writer_until_its_lease_ends(lost: bool) -> None:
    rule = {"kind": "notification", "message": "done", **({"lost": True} if lost else {"delay_s": 0.15})}
    async with pair(script(rule), kv_lease_s=0.4) as (writer, reader):
        first, ticket = await writer.prefill("p", PROMPT)
        reader.submit("d", (*PROMPT, first), SHORT, pull=ticket)
        await asyncio.sleep(0.1)
        assert writer.used > 0
        await reader.end_of("d")
        await writer.until(lambda: writer.used == 0)
        assert writer.engine.stats().tickets_expired == (1 if lost else 0)
        assert reader.engine.stats().failed_notifications == (1 if lost else 0)


async def test_early_expiry_breaks_the_promise_of_the_ticket() -> None:
    async with pair(writer_script=script({"kind": "early_expiry", "after_s": 0.02})) as (writer, reader):
        first, ticket = await writer.prefill("p", PROMPT)
        assert ticket.lease_s == 30.0
        await writer.until(lambda: writer.used == 0)
        reader.submit("d", (*PROMPT, first), SHORT, pull=ticket)
        await reader.end_of("d")
        fault = reader.fault_of("d")
        assert fault is not None
        assert fault.kind is FaultKind.TICKET_EXPIRED


async def test_stale_epoch_and_missing_hand_off() -> None:
    rules = ({"kind": "stale_epoch", "where": {"request": "s"}}, {"kind": "handoff_missing", "where": {"request": "m"}})
    async with pair(writer_script=script(*rules), kv_lease_s=0.3) as (writer, reader):
        first, ticket = await writer.prefill("s", PROMPT)
        reader.submit("d", (*PROMPT, first), SHORT, pull=ticket)
        await reader.end_of("d")
        stale = reader.fault_of("d")
        assert stale is not None
        assert stale.kind is FaultKind.TICKET_STALE
        writer.submit("m", PROMPT, Sampling(max_tokens=1, ignore_eos=True), hold=True)
        await writer.end_of("m")
        missing = writer.fault_of("m")
        assert missing is not None
        assert missing.kind is FaultKind.HANDOFF_MISSING


async def test_foreign_kv_gives_a_foreign_answer_and_no_error() -> None:
    async with pair(script({"kind": "foreign_kv"})) as (writer, reader), engine("well") as well:
        whole = await well.run("a", PROMPT, Sampling(max_tokens=20, temperature=0.0, ignore_eos=True))
        first, ticket = await writer.prefill("p", PROMPT, temperature=0.0)
        rest = await reader.run(
            "d", (*PROMPT, first), Sampling(max_tokens=19, temperature=0.0, ignore_eos=True), pull=ticket
        )
        assert (first, *rest) != whole
        assert reader.fault_of("d") is None


async def test_a_reset_fails_the_pull_and_is_survived_by_the_next_one() -> None:
    async with pair(script({"kind": "reset", "times": 1}), kv_lease_s=0.5) as (writer, reader):
        for name, kind in (("d1", FaultKind.KV_LOAD_FAILED), ("d2", None)):
            first, ticket = await writer.prefill(f"p{name}", PROMPT)
            await reader.run(name, (*PROMPT, first), SHORT, pull=ticket, cache_salt=name)
            assert kind_of(reader, name) is kind
        assert [(peer.transfers, peer.failures) for peer in reader.engine.stats().transfers] == [(1, 1)]
        await reader.until(lambda: reader.used == 0)
        await writer.until(lambda: writer.used == 0)  # nobody read the first one: its lease has ended


async def test_a_reset_breaks_every_pull_that_uses_the_connection() -> None:
    async with pair(script({"kind": "reset", "where": {"request": "bad"}}), **SLOW_LINK) as (writer, reader):
        for name in ("beside", "bad"):
            first, ticket = await writer.prefill(f"p-{name}", PROMPT)
            reader.submit(name, (*PROMPT, first), SHORT, pull=ticket)
        for name in ("beside", "bad"):
            await reader.end_of(name)
            assert kind_of(reader, name) is FaultKind.KV_LOAD_FAILED


@pytest.mark.parametrize("stops", [True, False])
async def test_a_writer_that_dies_in_the_middle_fails_the_pull_at_once(stops: bool) -> None:
    death = script({"kind": "die", "after_tokens": 0, "where": {"request": "end"}})
    async with pair(writer_script=death, **SLOW_LINK) as (writer, reader):
        first, ticket = await writer.prefill("p", PROMPT)
        reader.submit("d", (*PROMPT, first), SHORT, pull=ticket)
        await reader.until(lambda: writer.engine._handoff.pins.reading)
        assert await silent(reader, "d") == 0
        if stops:
            await writer.engine.stop()
        else:
            writer.submit("end", PROMPT, SHORT)
        await reader.end_of("d")
        assert kind_of(reader, "d") is FaultKind.KV_LOAD_FAILED
        assert reader.used == 0
        assert not (await reader.engine.warm(writer.info)).ok


async def test_slow_first_token() -> None:
    async with engine(script=script({"kind": "slow_first_token", "delay_s": 0.1})) as one, engine("well") as well:
        started = time.monotonic()
        answer = await one.run("a", PROMPT, SHORT)
        assert time.monotonic() - started >= 0.1
        assert answer == await well.run("a", PROMPT, SHORT)


async def test_step_time_spikes() -> None:
    async with engine(script=script({"kind": "step_time", "every": 5, "add_s": 0.05})) as one:
        started = time.monotonic()
        await one.run("a", PROMPT, SHORT)
        assert time.monotonic() - started >= 0.1


async def test_framing_splits_and_joins_but_changes_nothing() -> None:
    async with engine("well") as well:
        whole = await well.run("a", PROMPT, SHORT)
    for rule, frames in (({"outputs_per_frame": 1}, 30), ({"steps_per_frame": 4}, 3)):
        async with engine(script=script({"kind": "framing", **rule})) as one:
            for name in ("a", "b", "c"):
                one.submit(name, PROMPT, SHORT)
            for name in ("a", "b", "c"):
                assert tokens(await one.end_of(name)) == whole
            assert len(one.frames) == frames


async def test_leaked_blocks_never_come_back() -> None:
    async with engine(script=script({"kind": "leak", "blocks": 1, "times": 3})) as one:
        for index in range(5):
            await one.run(f"r{index}", PROMPT, SHORT)
        assert one.used == 3


async def test_wrong_counts() -> None:
    rules = (
        {"kind": "wrong_count", "cached_tokens": 999, "where": {"request": "c"}},
        {"kind": "wrong_count", "double_token": 3, "where": {"request": "d"}},
        {"kind": "wrong_count", "drop_token": 3, "where": {"request": "e"}},
    )
    async with engine(script=script(*rules)) as one:
        whole = await one.run("a", PROMPT, SHORT)
        assert await one.run("c", PROMPT, SHORT) == whole
        assert one.outputs["c"][0].delta.cached_tokens == 999
        assert await one.run("d", PROMPT, SHORT) == whole[:3] + whole[2:]
        assert await one.run("e", PROMPT, SHORT) == whole[:2] + whole[3:]


async def test_a_clock_that_is_wrong_changes_no_hand_off_but_one_that_runs_fast_ends_leases() -> None:
    async with pair(writer_script=script({"kind": "clock", "offset_s": 1e6})) as (writer, reader):
        first, ticket = await writer.prefill("p", PROMPT)
        await reader.run("d", (*PROMPT, first), SHORT, pull=ticket)
        assert reader.fault_of("d") is None
        assert 0 <= writer.outputs["p"][0].delta.queue_s < 1e5
    async with engine(script=script({"kind": "clock", "rate": 1000.0}), kv_lease_s=20.0) as one:
        await one.prefill("p", PROMPT)
        await one.until(lambda: one.used == 0)


async def test_legs_lengths_counts_and_chances_select_requests() -> None:
    rules = (
        {"kind": "refuse", "where": {"leg": "prefill", "min_prompt_tokens": 10}},
        {"kind": "refuse", "probability": 0.5, "where": {"request": "x*"}},
    )
    async with engine(script=script(*rules)) as one:
        await one.run("local", PROMPT, SHORT)
        await one.prefill("small", PROMPT[:5])
        with pytest.raises(FaultError):
            await one.prefill("large", PROMPT)
        refused = 0
        for index in range(200):
            try:
                await one.run(f"x{index}", (1,), Sampling(max_tokens=1))
            except FaultError:
                refused += 1
        assert 70 < refused < 130


def test_scripts_are_checked(tmp_path: Path) -> None:
    with pytest.raises(FaultScriptError, match="kind"):
        parse_script("faults: [{kind: nonsense}]")
    with pytest.raises(FaultScriptError, match="extra"):
        parse_script("faults: [{kind: full, extra: 1}]")
    with pytest.raises(FaultScriptError, match="either lost or delayed"):
        parse_script("faults: [{kind: notification}]")
    with pytest.raises(FaultScriptError, match=r"none\.yaml"):
        read_script(str(tmp_path / "none.yaml"))
    (tmp_path / "latin.yaml").write_bytes(b"\xe9")
    for path in (str(tmp_path / "latin.yaml"), "no\0file"):
        with pytest.raises(FaultScriptError, match=r"latin|no.x00file"):
            read_script(path)
    assert parse_script("").faults == ()


def test_every_example_of_the_documentation_is_valid() -> None:
    documented = Path(__file__).parents[3] / "docs" / "faults.md"
    examples = documented.read_text().split("```yaml\n")[1:]
    kinds = set()
    for example in examples:
        kinds |= {rule.kind for rule in parse_script(example.split("```")[0]).faults}
    assert kinds == {
        "hang", "die", "refuse", "fail", "notification", "early_expiry", "stale_epoch", "handoff_missing", "foreign_kv",
        "reset", "slow_first_token", "wrong_count", "leak", "engine_hang", "full", "step_time", "framing", "clock",
    }  # fmt: skip


async def test_the_script_can_be_replaced_from_outside_only_where_one_is_configured(tmp_path: Path) -> None:
    empty = tmp_path / "none.yaml"
    empty.write_text("faults: []\n")
    for path, allowed in ((str(empty), True), ("", False)):
        async with engine(faults=path) as one:
            address = one.engine._handoff.address

            async def give(script: str, host: str = address.host, port: int = address.port) -> str:
                return await inject(host, port, script)

            refusal = await give("faults: [{kind: full}]")
            assert (refusal == "") is allowed
            assert (one.used > 0) is allowed
            if allowed:
                assert "kind" in await give("faults: [{kind: x}]")
                assert await give("") == ""
                assert one.used == 0
            else:
                assert "off" in refusal
    assert "no answer" in await inject("127.0.0.1", address.port, "")
