"""What happens beyond one node (R-36): ranks that exchange over the network, and replicas whose KV is each their own."""

from dataclasses import replace

import pytest

from engine.simulated.cost import UnknownProfileError, load_profile
from engine.simulated.cost.exchange import exchange_of
from engine.simulated.cost.models import SHAPES
from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.plan.candidate import Engine
from loadgen.plan.crossover.dense import Sizes
from loadgen.simulate import parse_layout, simulate
from loadgen.simulate.simulation import Simulation
from loadgen.slo.constraint import value_ms
from tests.loadgen.simulate.build import free_of_overheads, layout, opened

QWEN = "h200-sxm/qwen3-32b"


def tpots(link: str, tp: int, at_once: int) -> list[float]:
    words = f"--profile '{QWEN}?tp={tp}{link}' --colocated 1 --gpus-per-node 4"
    results = simulate(parse_layout(words), opened([(0.0, Demand(1000, 50)) for _ in range(at_once)])).results
    found = [value_ms("tpot", result) for result in results]
    assert all(result.completed for result in results)
    return [ms for ms in found if ms is not None]


def test_tpot_rises_when_the_ranks_exchange_at_50_gb_s() -> None:
    """More, the more ranks there are and the more tokens a step has."""
    rise = {
        (tp, at_once): max(tpots("&link=50", tp, at_once)) / max(tpots("&link=450", tp, at_once))
        for tp, at_once in ((2, 64), (4, 64), (8, 1), (8, 64))
    }
    assert rise[2, 64] > 1.05
    assert rise[2, 64] < rise[4, 64] < rise[8, 64]
    assert 1.0 < rise[8, 1] < rise[8, 64]


def test_what_a_slower_link_adds_is_the_bytes_that_are_sent() -> None:
    for tp in (2, 8):
        fast, slow = (load_profile(f"{QWEN}?tp={tp}{link}").cost for link in ("", "&link=50"))
        sent = exchange_of(SHAPES["qwen3-32b"], tp=tp, pp=1, ep=1).sent_bytes_per_token
        expected_s = 256 * sent * (1 / 50e9 - 1 / 450e9)
        assert slow.step_s(256, 256 * 1000) - fast.step_s(256, 256 * 1000) == pytest.approx(expected_s)
        slower, was = slow.breakdown(256, 256 * 1000), fast.breakdown(256, 256 * 1000)
        assert slower.collective_s - was.collective_s == pytest.approx(expected_s)
        assert (slower.compute_s, slower.memory_s) == pytest.approx((was.compute_s, was.memory_s))


def test_one_gpu_and_the_table_s_own_link_change_nothing() -> None:
    for words in ("?tp=1&link=50", "?tp=8&link=450"):
        plain = load_profile(f"{QWEN}{words.partition('&')[0]}").cost
        assert load_profile(f"{QWEN}{words}").cost.step_s(64, 64_000, [(512, 0)]) == plain.step_s(
            64, 64_000, [(512, 0)]
        )


def test_stages_and_a_slower_link_add_up() -> None:
    """Two stages of four ranks exchange as much as one of four: each layer once."""

    def added_s(words: str) -> float:
        fast, slow = (load_profile(f"{QWEN}?{words}{link}").cost for link in ("", "&link=50"))
        return slow.step_s(64, 64_000) - fast.step_s(64, 64_000)

    assert added_s("tp=4&pp=2") == pytest.approx(added_s("tp=4"))


def test_a_faster_link_than_the_table_s_is_refused() -> None:
    with pytest.raises(UnknownProfileError, match=r"link=900 is above the 450 GB/s"):
        load_profile(f"{QWEN}?tp=8&link=900")


def test_a_group_across_nodes_must_say_its_link() -> None:
    words = "--colocated 1 --gpus-per-node 4 --profile"
    with pytest.raises(LoadgenError, match=r"TP8 does not fit a node of 4 GPUs.*\?link=50"):
        parse_layout(f"{words} '{QWEN}?tp=8'")
    assert parse_layout(f"{words} '{QWEN}?tp=8&link=50'").gpus == 8
    assert parse_layout(f"{words} '{QWEN}?tp=2&pp=4'").gpus == 8, "stages may be apart: their hops are the network's"


def test_two_nodes_of_replicas_still_report_stranded_kv() -> None:
    """Four engines without control, two to a node: some have room that those with the long prompts cannot use."""
    one = free_of_overheads(layout(colocated=4, blocks=60, admission=False, gpus_per_node=2))
    sizes = [Demand(800, 100) if n % 2 == 0 else Demand(20, 3) for n in range(800)]
    simulation = Simulation(one, opened([(0.01 * n, demand) for n, demand in enumerate(sizes)]))
    outcome = simulation.run()
    assert [worker.node for worker in simulation.fleet.workers.values()] == [0, 0, 1, 1]
    assert outcome.telemetry.peak("kv_stranded_blocks")
    assert max(worker.kv_stranded for worker in outcome.workers) > 0.0
    (note,) = [note for note in outcome.notes if note.startswith("stranded KV")]
    assert "on 2 nodes: " in note
    alone = simulate(replace(one, gpus_per_node=8), opened([(0.0, Demand(100, 3))]))
    assert not any("nodes" in note for note in alone.notes)


def test_a_plan_keeps_the_link_that_its_model_says() -> None:
    slow, fast = (Engine(f"{QWEN}{link}", tp=8) for link in ("?link=50", ""))
    assert "link=50" in slow.words()
    assert slow.load().cost.step_s(64, 64_000) > fast.load().cost.step_s(64, 64_000)


def test_a_crossover_drops_no_word_of_its_model() -> None:
    with pytest.raises(LoadgenError, match="may say gib=N alone"):
        Sizes(f"{QWEN}?link=50")
    assert Sizes(f"{QWEN}?gib=96").model == f"{QWEN}?gib=96"
