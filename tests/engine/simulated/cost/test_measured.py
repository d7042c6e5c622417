"""A measured table: recovers what an engine does, survives the file, and loads by name."""

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from engine.simulated.cost import StepCost, load_profile
from engine.simulated.cost.linear import LinearCost
from engine.simulated.cost.measured import MeasuredStep, TooFewPointsError, fit
from engine.simulated.cost.profile_engine import Plan, profile
from engine.simulated.cost.table import Facts, Table, TableError, read_table, write_table
from engine.simulated.cost.table_cost import TableCost
from tests.engine.simulated.cost.clockwork import INFO, ClockworkEngine

BUILT_IN = Path("engine/simulated/cost/tables/h200-sxm/llama-3.1-8b.json.gz").resolve()
TRUTH = LinearCost(base_s=5e-3, token_s=100e-6, context_token_s=1e-6, token_pair_s=50e-9)
PLAN = Plan(batches=(1, 2, 4, 8), contexts=(32, 256, 1024), most_tokens=8192)
FACTS = Facts("m", "float32", 1, 16, 100, 1024, 2048, 8, 512, 1000, (2,))

STEPS = [
    (3, 3 * 700, []),
    (8, 8 * 300, []),
    (0, 0, [(700, 0)]),
    (0, 0, [(300, 800)]),
    (6, 6 * 500, [(400, 0)]),
    (6, 6 * 500, [(400, 512)]),
]


async def measured(cost: StepCost, plan: Plan = PLAN, *, caching: bool = True) -> Table:
    engine = ClockworkEngine(cost, caching=caching)
    table = await profile(engine, plan, clock=lambda: engine.now)
    assert engine.stopped
    return table


@pytest.mark.parametrize("caching", [True, False])
async def test_measuring_an_engine_recovers_its_cost(caching: bool) -> None:
    table = await measured(TRUTH, caching=caching)
    cost = TableCost(table.layouts[0])
    for batch, context, chunks in STEPS:
        assert cost.step_s(batch, context, chunks) == pytest.approx(TRUTH.step_s(batch, context, chunks), rel=0.02)
    assert table.fit["decode_median_error"] < 0.001
    assert table.fit["prefill_median_error"] < 0.01
    assert table.fit["mixed_median_error"] < 0.02


async def test_a_measured_profile_loads_by_its_file(tmp_path: Path) -> None:
    table = await measured(TRUTH)
    for name in ("table.json", "table.json.gz"):
        write_table(table, tmp_path / name)
        loaded = load_profile(f"file:{tmp_path / name}")
        assert loaded.model == INFO.model
        assert loaded.device == "clockwork"
        assert (loaded.blocks_total, loaded.block_size_tokens) == (INFO.blocks_total, INFO.block_size_tokens)
        assert loaded.eos_token_ids == INFO.eos_token_ids
        assert loaded.max_num_batched_tokens == PLAN.max_num_batched_tokens
        assert loaded.links["tcp"].bytes_per_s > 0
        assert loaded.cost.step_s(4, 2000) == TableCost(table.layouts[0]).step_s(4, 2000)


async def test_the_table_of_a_table_is_the_table() -> None:
    """Measuring an engine that runs on H200 tables gives their times back."""
    h200 = load_profile("h200-sxm/llama-3.1-8b").cost
    cost = TableCost((await measured(h200)).layouts[0])
    for batch, context, chunks in STEPS:
        assert cost.step_s(batch, context, chunks) == pytest.approx(h200.step_s(batch, context, chunks), rel=0.10)


def test_noise_never_makes_more_work_cheaper() -> None:
    noisy = [
        MeasuredStep(s, batch, context)
        for s, batch, context in [
            (10e-3, 1, 32),
            (9e-3, 1, 512),
            (8e-3, 2, 32),
            (12e-3, 2, 512),
            (11e-3, 4, 32),
            (10e-3, 4, 512),
        ]
    ]
    noisy += [MeasuredStep(s, new=new) for s, new in [(20e-3, 16), (15e-3, 64), (60e-3, 256), (50e-3, 512)]]
    cost = TableCost(fit(noisy, FACTS, tp=1, device="d", links={}).layouts[0])
    for context in (32, 512, 4000):
        times = [cost.step_s(batch, batch * context) for batch in range(1, 9)]
        assert times == sorted(times)
    for before in (0, 100):
        times = [cost.step_s(0, 0, [(new, before)]) for new in range(1, 600, 7)]
        assert times == sorted(times)


async def test_a_spell_of_noise_does_not_reach_the_table() -> None:
    steps: list[MeasuredStep] = []
    engine = ClockworkEngine(TRUTH)
    await profile(engine, PLAN, clock=lambda: engine.now, progress=steps.append)
    third = len(steps) // 3
    noisy = [replace(step, s=step.s * 3) if index < third else step for index, step in enumerate(steps)]
    cost = TableCost(fit(noisy, FACTS, tp=1, device="d", links={}).layouts[0])
    for batch, context, chunks in STEPS:
        assert cost.step_s(batch, context, chunks) == pytest.approx(TRUTH.step_s(batch, context, chunks), rel=0.02)


def test_too_few_measurements_are_refused() -> None:
    decode = [MeasuredStep(1e-3, 1, 32), MeasuredStep(2e-3, 1, 64)]
    with pytest.raises(TooFewPointsError, match="two contexts"):
        fit([decode[0]], FACTS, tp=1, device="d", links={})
    with pytest.raises(TooFewPointsError, match="three lengths"):
        fit([*decode, MeasuredStep(1e-3, new=16)], FACTS, tp=1, device="d", links={})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "tandem-step-times/1"}', '{"format": "other"}'])
def test_a_file_that_is_no_table_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(TableError, match=r"bad\.json"):
        read_table(path)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("step", "total_s"), [1.0]),
        (("step", "total_s"), {}),
        (("step", "tokens"), []),
        (("prompt", "s", 0), None),
        (("prompt_context", "columns"), []),
        (("prompt_context", "columns", 0), []),
        (("prompt_context", "s"), []),
        (("prompt_context", "s", 0, 0), math.nan),
        (("decode_attention", "s", 0, 0), math.inf),
        (("ep",), math.inf),
    ],
)
def test_a_table_with_a_torn_line_is_named_when_it_is_read(
    tmp_path: Path, where: tuple[str | int, ...], value: object
) -> None:
    """It was read, and the first step that came near the place ended with a traceback."""
    document = json.loads(gzip.decompress(BUILT_IN.read_bytes()))
    node = document["layouts"][0]
    for key in where[:-1]:
        node = node[key]
    node[where[-1]] = value
    path = tmp_path / "torn.json"
    path.write_text(json.dumps(document))
    with pytest.raises(TableError, match=r"torn\.json"):
        read_table(path)


def test_another_version_of_a_built_in_table_loads_by_its_file() -> None:
    copy, original = load_profile(f"file:{BUILT_IN}?tp=2"), load_profile("h200-sxm/llama-3.1-8b?tp=2")
    assert copy.kv_tokens_total == original.kv_tokens_total
    assert copy.cost.step_s(8, 8000, [(512, 0)]) == original.cost.step_s(8, 8000, [(512, 0)])
