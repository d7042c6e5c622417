"""What two engines do to each other is measured, kept in the table, and done by those that imitate them."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.base import WorkerIdentity
from engine.config import Backend, EngineConfig
from engine.simulated import SimulatedEngine
from engine.simulated.cost.linear import LinearCost
from engine.simulated.cost.measured import MeasuredStep, fit
from engine.simulated.cost.profile_engine import Plan, profile
from engine.simulated.cost.profile_pair import MeasuredPull, fit_link
from engine.simulated.cost.table import Facts, Table, read_table, write_table
from proto.worker import Role
from tests.engine.simulated.jumping_loop import JumpingLoop

FACTS = Facts("m", "float32", 1, 16, 512, 100_000, 2048, 8, 512, 1000, (2,))
TRUTH = LinearCost(base_s=10e-3, token_s=0.3e-3, context_token_s=1e-6, token_pair_s=50e-9)
LINK = (100e6, 20e-3)
SHARING = {"decode": 3.0, "prefill": 2.0}


def table() -> Table:
    points = [(1, 32, 0), (1, 256, 0), (4, 32, 0), (4, 256, 0), (0, 0, 8), (0, 0, 64), (0, 0, 256)]
    steps = [
        MeasuredStep(TRUTH.step_s(batch, batch * context, [(new, 0)] if new else []), batch, context, new)
        for batch, context, new in points
    ]
    return fit(steps, FACTS, tp=1, device="d", links={"tcp": LINK}, sharing=SHARING)


def test_links_and_sharing_survive_the_file(tmp_path: Path) -> None:
    write_table(table(), tmp_path / "t.json")
    read = read_table(tmp_path / "t.json")
    assert (read.links, read.sharing) == ({"tcp": LINK}, SHARING)
    alone = replace(table(), sharing={})
    write_table(alone, tmp_path / "alone.json")
    assert read_table(tmp_path / "alone.json").sharing == {}


def test_a_link_is_a_line_over_sizes_and_one_slow_pull_does_not_bend_it() -> None:
    pulls = [MeasuredPull(size, 5e-3 + size / 2e9) for size in (1_000_000, 6_000_000, 48_000_000) for _ in range(3)]
    rate, latency_s = fit_link([*pulls[:-1], replace(pulls[-1], s=1.0)])
    assert rate == pytest.approx(2e9, rel=0.01)
    assert latency_s == pytest.approx(5e-3, rel=0.01)


def test_a_link_that_noise_makes_faster_with_size_has_no_cost_by_size() -> None:
    rate, latency_s = fit_link([MeasuredPull(1_000, 3e-3), MeasuredPull(1_000_000, 2e-3)])
    assert rate > 1e11
    assert 2e-3 <= latency_s <= 3e-3


def test_measuring_a_pair_of_imitations_gives_the_table_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        loop = runner.get_loop()
        monkeypatch.setattr(time, "monotonic", loop.time)
        runner.run(_measure_a_pair(tmp_path, loop.time))


async def _measure_a_pair(tmp_path: Path, clock: Callable[[], float]) -> None:
    path = tmp_path / "t.json"
    write_table(table(), path)
    config = EngineConfig(backend=Backend.SIMULATED, profile=f"file:{path}")
    one, other = (SimulatedEngine(config, WorkerIdentity(name, "epoch", Role.BOTH)) for name in ("one", "other"))
    plan = Plan(
        batches=(1, 2),
        contexts=(32, 128),
        lengths=(8, 64, 128),
        cached=(),
        beside=(),
        repeats=2,
        pulls=(60, 250),
        rounds=2,
    )
    measured = await profile(one, plan, neighbour=other, clock=clock)
    assert measured.sharing["decode"] == pytest.approx(SHARING["decode"], rel=0.3)
    assert measured.sharing["prefill"] == pytest.approx(SHARING["prefill"], rel=0.3)
    rate, latency_s = measured.links["tcp"]
    assert rate == pytest.approx(LINK[0], rel=0.4)
    assert latency_s == pytest.approx(LINK[1], rel=0.5)
