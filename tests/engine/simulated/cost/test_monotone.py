"""More work never costs less: property tests over every kind of cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.cost import StepCost, load_profile
from tests.examples import examples

NAMES = ["toy", "h200-sxm/llama-3.1-8b", "h200-sxm/qwen3-32b?tp=4", "h200-sxm/deepseek-r1"]
COSTS = {name: load_profile(name).cost for name in NAMES}
batches = st.integers(1, 1024)
contexts = st.integers(1, 140_000)
tokens = st.integers(1, 16_384)
costs = pytest.mark.parametrize("cost", COSTS.values(), ids=NAMES)
#: Sums of floats in different orders.
SLACK = 1 + 1e-9


@costs
@given(batch=batches, more=batches, context=contexts)
def test_more_sequences_at_the_same_context_take_no_less(cost: StepCost, batch: int, more: int, context: int) -> None:
    both = batch + more
    assert cost.step_s(batch, batch * context) <= cost.step_s(both, both * context) * SLACK


@costs
@given(batch=batches, total=st.integers(1, 10_000_000), more=st.integers(0, 1_000_000))
def test_longer_contexts_take_no_less(cost: StepCost, batch: int, total: int, more: int) -> None:
    assert cost.step_s(batch, total) <= cost.step_s(batch, total + more) * SLACK


@costs
@given(new=tokens, more=tokens, before=st.integers(0, 100_000))
def test_a_longer_prompt_takes_no_less(cost: StepCost, new: int, more: int, before: int) -> None:
    assert cost.step_s(0, 0, [(new, before)]) <= cost.step_s(0, 0, [(new + more, before)]) * SLACK


@costs
@given(new=tokens, before=st.integers(1, 100_000), more=st.integers(0, 30_000))
def test_more_cached_tokens_take_no_less(cost: StepCost, new: int, before: int, more: int) -> None:
    assert cost.step_s(0, 0, [(new, before)]) <= cost.step_s(0, 0, [(new, before + more)]) * SLACK


@costs
@given(batch=batches, context=contexts, chunks=st.lists(st.tuples(tokens, st.integers(0, 65_536)), max_size=4))
def test_a_chunk_beside_decodes_takes_no_less_than_the_decodes(
    cost: StepCost, batch: int, context: int, chunks: list[tuple[int, int]]
) -> None:
    alone = cost.step_s(batch, batch * context)
    for count in range(len(chunks) + 1):
        assert alone <= cost.step_s(batch, batch * context, chunks[:count]) * SLACK


@costs
@given(
    batch=batches, context=contexts, more=st.integers(0, 512), new=tokens, grown=tokens, before=st.integers(0, 65_536)
)
def test_a_mixed_step_grows_with_its_chunk_and_its_batch(
    cost: StepCost, batch: int, context: int, more: int, new: int, grown: int, before: int
) -> None:
    step = cost.step_s(batch, batch * context, [(new, before)])
    larger = cost.step_s(batch + more, (batch + more) * context, [(new, before)])
    longer = cost.step_s(batch, batch * context, [(new + grown, before)])
    assert step <= larger * SLACK
    assert step <= longer * SLACK


@costs
@given(chunks=st.permutations([(512, 0), (64, 0), (2048, 4096), (16, 128)]))
@examples(24)
def test_the_order_of_chunks_does_not_matter(cost: StepCost, chunks: list[tuple[int, int]]) -> None:
    for batch in (0, 7):
        expected = cost.step_s(batch, 7000, sorted(chunks))
        assert cost.step_s(batch, 7000, chunks) == pytest.approx(expected)


@given(batch=batches, new=tokens, before=st.integers(0, 100_000), more=st.integers(0, 30_000))
def test_latent_attention_reads_earlier_context_and_the_decodes_beside_a_chunk(
    batch: int, new: int, before: int, more: int
) -> None:
    cost = COSTS["h200-sxm/deepseek-r1"]
    step = cost.step_s(batch, batch * 1000, [(new, before)])
    assert step <= cost.step_s(batch, batch * 1000, [(new, before + more)]) * SLACK
    alone = cost.step_s(batch, batch * 9000) - cost.step_s(batch, batch * 1000)
    assert cost.step_s(batch, batch * 9000, [(new, before)]) - step == pytest.approx(alone)
