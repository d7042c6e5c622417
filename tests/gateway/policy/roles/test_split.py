"""How many workers lean to prefill."""

from dataclasses import replace

from gateway.policy.roles import Aims, Knobs, StepLaw
from gateway.policy.roles.demand import Demand, Load
from gateway.policy.roles.split import Groups, Room, best, carries

LAW = StepLaw(weights_s=0.018, token_s=9.5e-5, context_s=7e-8)
ROOM = Room(kv_tokens=250_000.0, sequences=256)
CODE = Load(prompt_tokens_per_s=40_000, tokens_per_s=600, context_tokens=2_000, haste=0.05)
REASONING = Load(prompt_tokens_per_s=300, tokens_per_s=9_000, context_tokens=3_000, haste=0.001)


def lean(load: Load, tpot_s: float, now: int = 0, knobs: Knobs | None = None) -> int:
    return best(load, LAW, 8, 0, 0, ROOM, Aims(1.0, tpot_s), knobs or Knobs(), now)


def test_long_prompts_under_a_tight_limit_make_most_lean() -> None:
    assert lean(CODE, 0.030) >= 4


def test_answers_that_need_all_kv_make_nobody_lean() -> None:
    assert lean(REASONING, 0.050) == 0


def test_answers_that_need_all_places_of_the_batch_make_nobody_lean() -> None:
    """KV alone said that four could be spared: of a batch, they cannot."""
    aims, plenty = Aims(1.0, 0.030), replace(ROOM, sequences=10_000)
    few = replace(ROOM, sequences=3)
    assert best(CODE, LAW, 8, 0, 0, plenty, aims, Knobs(), 0) >= 4
    assert best(CODE, LAW, 8, 0, 0, few, aims, Knobs(), 0) == 0


def test_where_a_step_has_room_for_large_chunks_nobody_need_lean() -> None:
    assert lean(CODE, 0.200) == 0


def test_a_little_more_is_no_reason_to_move_workers() -> None:
    there = lean(CODE, 0.030)
    assert lean(CODE, 0.030, now=there - 1, knobs=Knobs(gain=0.2)) == there - 1
    assert lean(CODE, 0.030, now=there - 1, knobs=Knobs(gain=0.0)) == there


def test_somebody_always_decodes() -> None:
    assert lean(replace(CODE, tokens_per_s=1e-3), 0.019) < 8


def test_dedicated_workers_count() -> None:
    aims = Aims(1.0, 0.030)
    alone = best(CODE, LAW, 8, 0, 0, ROOM, aims, Knobs(), 0)
    beside = best(CODE, LAW, 4, alone, 0, ROOM, aims, Knobs(), 0)
    assert beside < alone


def test_more_workers_carry_more() -> None:
    few, many = (carries(CODE, LAW, Groups(n // 2, n // 2, ROOM), Aims(1.0, 0.050), Knobs()) for n in (4, 8))
    assert 1.8 < many / few < 2.2


def test_demand_is_the_rate_from_the_start_and_fades() -> None:
    demand = Demand(memory_s=20.0)
    for n in range(21):
        demand.arrived(n / 2, 1000, 800, 100.0)
    early = demand.load(10.0)
    assert 0.9 < early.prompt_tokens_per_s / 1600 < 1.2
    assert early.context_tokens == 1050
    assert demand.load(1000.0).prompt_tokens_per_s < 1
