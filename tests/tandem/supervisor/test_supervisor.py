import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from gateway.cluster.snapshot import ClusterSnapshot
from gateway.cluster.states import PairState, WorkerStatus
from proto.worker import Role
from tandem.supervisor.keeper import State
from tandem.supervisor.plan import Plan
from tandem.supervisor.supervisor import Outcome, Stop, Supervisor
from tests.tandem.supervisor.cluster import (
    DYING,
    QUICK,
    STUBBORN,
    FakeProbe,
    Recorder,
    alive_in_groups,
    pair_snapshot,
    plan_of,
    worker_snapshot,
)
from tests.waiting import HANG_S, until


@dataclass
class Run:
    supervisor: Supervisor
    stop: Stop
    probe: FakeProbe
    recorder: Recorder
    task: "asyncio.Task[Outcome]"

    def pid(self, name: str) -> int:
        return self.recorder.started_pids[name][-1]

    @property
    def pids(self) -> list[int]:
        return [pid for pids in self.recorder.started_pids.values() for pid in pids]

    async def end(self) -> Outcome:
        self.stop.drain.set()
        return await asyncio.wait_for(self.task, HANG_S)


def lines(snapshot: ClusterSnapshot, took_s: float) -> Sequence[str]:
    return [f"ready with {len(snapshot.workers)} workers"]


@contextlib.asynccontextmanager
async def running(plan: Plan, probe: FakeProbe | None = None) -> AsyncIterator[Run]:
    probe = probe or FakeProbe()
    recorder, stop = Recorder(), Stop()
    supervisor = Supervisor(plan, QUICK, probe, recorder, lines)
    run = Run(supervisor, stop, probe, recorder, asyncio.create_task(supervisor.run(stop)))
    try:
        yield run
    finally:
        if not run.task.done():
            stop.drain.set()
            stop.now.set()
            await asyncio.wait_for(run.task, HANG_S)
        assert alive_in_groups(run.pids) == []


async def test_everything_starts_reports_ready_and_ends_at_the_first_signal(tmp_path: Path) -> None:
    async with running(plan_of(tmp_path)) as run:
        await until(lambda: run.recorder.summary)
        assert run.recorder.summary == ["ready with 2 workers"]
        assert set(run.recorder.started_pids) == {"gateway", "prefill-0", "decode-0"}
        await until(lambda: len(alive_in_groups(run.pids)) == 6)  # every child has a grandchild
        assert await run.end() is Outcome.ENDED


async def test_children_lead_their_own_process_groups(tmp_path: Path) -> None:
    async with running(plan_of(tmp_path)) as run:
        await until(lambda: run.recorder.summary)
        assert all(os.getpgid(pid) == pid for pid in run.pids)


async def test_a_pair_that_still_warms_is_not_ready(tmp_path: Path) -> None:
    probe = FakeProbe(pair=pair_snapshot(PairState.WARMING))
    async with running(plan_of(tmp_path), probe) as run:
        await until(lambda: len(run.recorder.states) > 2)
        assert not run.recorder.summary
        probe.pair = pair_snapshot(PairState.USABLE)
        await until(lambda: run.recorder.summary)


async def test_a_child_that_dies_while_starting_fails_the_start_with_its_last_words(tmp_path: Path) -> None:
    probe = FakeProbe(ready=False)
    async with running(plan_of(tmp_path, decode=DYING), probe) as run:
        assert await asyncio.wait_for(run.task, HANG_S) is Outcome.FAILED
        [(death, restart_in_s)] = run.recorder.deaths
        assert (death.name, death.cause, death.tail) == ("decode-0", "exit status 7", ("no such model",))
        assert restart_in_s is None
        assert len(run.recorder.started_pids["decode-0"]) == 1


async def test_not_ready_in_time_says_what_is_missing(tmp_path: Path) -> None:
    probe = FakeProbe()
    probe.workers["decode-0"] = worker_snapshot("decode-0", Role.DECODE, WorkerStatus.CONNECTING)
    recorder, stop = Recorder(), Stop()
    config = QUICK.model_copy(update={"start_timeout_s": 0.8})
    outcome = await Supervisor(plan_of(tmp_path), config, probe, recorder, lines).run(stop)
    assert outcome is Outcome.FAILED
    assert any("waiting for decode-0" in note for note in recorder.notes)


async def test_a_signal_before_ready_is_an_interruption(tmp_path: Path) -> None:
    async with running(plan_of(tmp_path), FakeProbe(ready=False)) as run:
        await until(lambda: len(run.recorder.started_pids) == 3)
        assert await run.end() is Outcome.INTERRUPTED


async def test_a_killed_worker_comes_back_and_leaves_no_orphan(tmp_path: Path) -> None:
    async with running(plan_of(tmp_path)) as run:
        await until(lambda: run.recorder.summary)
        first = run.pid("decode-0")
        os.kill(first, signal.SIGKILL)
        await until(lambda: len(run.recorder.started_pids["decode-0"]) == 2)
        assert alive_in_groups([first]) == []  # its grandchild went with it
        [(death, restart_in_s)] = run.recorder.deaths
        assert "SIGKILL" in death.cause
        assert restart_in_s == pytest.approx(QUICK.restart_backoff_s)


@pytest.mark.slow
async def test_a_returning_worker_counts_only_in_its_new_epoch(tmp_path: Path) -> None:
    async with running(plan_of(tmp_path)) as run:
        await until(lambda: run.recorder.summary)
        keeper = next(keeper for keeper in run.supervisor.keepers if keeper.spec.name == "decode-0")
        os.kill(run.pid("decode-0"), signal.SIGKILL)
        await until(lambda: keeper.restarts == 1 and keeper.state is State.RUNNING)
        await asyncio.sleep(1.2)  # two polls that still tell of the old process
        assert not keeper.joined.is_set()
        run.probe.workers["decode-0"] = worker_snapshot("decode-0", Role.DECODE, epoch="2")
        await until(keeper.joined.is_set)


async def test_restarts_are_bounded_and_the_rest_runs_on(tmp_path: Path) -> None:
    flag = tmp_path / "die"
    mortal = f"import os, time\nwhile not os.path.exists({str(flag)!r}): time.sleep(0.01)"
    async with running(plan_of(tmp_path, prefill=mortal)) as run:
        await until(lambda: run.recorder.summary)
        flag.touch()
        await until(lambda: len(run.recorder.deaths) == QUICK.restarts_max + 1)
        delays = [restart_in_s for _, restart_in_s in run.recorder.deaths]
        assert delays == [pytest.approx(0.05), pytest.approx(0.1), None]
        assert any("stays down" in note for note in run.recorder.notes)
        assert not run.task.done()
        assert await run.end() is Outcome.ENDED


async def test_a_gateway_that_stays_down_ends_everything(tmp_path: Path) -> None:
    flag = tmp_path / "die"
    mortal = f"import os, time\nwhile not os.path.exists({str(flag)!r}): time.sleep(0.01)"
    async with running(plan_of(tmp_path, gateway=mortal)) as run:
        await until(lambda: run.recorder.summary)
        flag.touch()
        assert await asyncio.wait_for(run.task, HANG_S) is Outcome.FAILED


def stubborn(log: Path) -> bool:
    """Whether it ignores SIGTERM by now."""
    return "up" in log.read_text()


@pytest.mark.slow
async def test_a_child_that_ignores_sigterm_is_killed_in_time(tmp_path: Path) -> None:
    async with running(plan_of(tmp_path, decode=STUBBORN)) as run:
        await until(lambda: run.recorder.summary and stubborn(tmp_path / "decode-0.log"), HANG_S)
        assert await run.end() is Outcome.ENDED
        assert any("decode-0 did not stop" in note for note in run.recorder.notes)


async def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, gateway=STUBBORN)
    plan = replace(plan, gateway=replace(plan.gateway, drain_s=10 * HANG_S))
    async with running(plan) as run:
        await until(lambda: run.recorder.summary and stubborn(tmp_path / "gateway.log"), HANG_S)
        run.stop.on_signal()
        await asyncio.sleep(0.3)
        assert not run.task.done()
        run.stop.on_signal()
        await asyncio.wait_for(run.task, HANG_S)


async def test_the_gateway_stops_before_the_workers(tmp_path: Path) -> None:
    order = tmp_path / "order"
    script = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    time.sleep(0.2)\n"
        f"    open({str(order)!r}, 'a').write(NAME + ' ')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"open({str(order)!r} + NAME, 'w').close()\n"
        "time.sleep(900)"
    )
    named = {name: f"NAME = {name!r}\n{script}" for name in ("gateway", "prefill", "decode")}
    async with running(plan_of(tmp_path, **named)) as run:
        await until(lambda: run.recorder.summary)
        await until(lambda: len(list(tmp_path.glob("order*"))) == 3)  # each of them is ready for its signal
        await run.end()
    assert order.read_text().split()[0] == "gateway"
    assert len(order.read_text().split()) == 3


@pytest.mark.slow
async def test_short_memory_starts_workers_one_after_another(tmp_path: Path) -> None:
    probe = FakeProbe()
    probe.workers["prefill-0"] = worker_snapshot("prefill-0", Role.PREFILL, WorkerStatus.WARMING)
    async with running(replace(plan_of(tmp_path), staggered=True), probe) as run:
        await asyncio.sleep(1.2)
        assert "decode-0" not in run.recorder.started_pids
        probe.workers["prefill-0"] = worker_snapshot("prefill-0", Role.PREFILL)
        await until(lambda: "decode-0" in run.recorder.started_pids)


async def test_the_document_reaches_the_child_on_standard_input_only(tmp_path: Path) -> None:
    echo = "import sys, time; print(sys.stdin.read(), sys.argv, flush=True); time.sleep(900)"
    plan = plan_of(tmp_path, gateway=echo)
    plan = replace(plan, gateway=replace(plan.gateway, document=b"secret document"))
    async with running(plan) as run:
        await until(lambda: run.recorder.summary)
        await until(lambda: "secret document" in plan.gateway.log.read_text())
        command = psutil.Process(run.pid("gateway")).cmdline()
        assert not any("secret document" in word for word in command)
